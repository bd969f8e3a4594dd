//! From a row of the entry table to its kernel as a type, for machines that run kernels from source.

use super::few_rows_epilogue::{FewRowsReduceScatterEpilogue, LowLatencyReduceScatterEpilogue};
use super::few_rows_reduce_scatter::FewRowsReduceScatter;
use super::gemm::Gemm;
use super::gemm_epilogue::GemmEpilogue;
use super::gemm_ping_pong::GemmPingPong;
use super::gemm_reduce_scatter::{FewTilesReduceScatter, GemmReduceScatter};
use super::gemm_reduce_scatter_epilogue::GemmReduceScatterEpilogue;
use super::gemm_reduce_scatter_ping_pong::GemmReduceScatterPingPong;
use super::low_latency_reduce_scatter::LowLatencyReduceScatter;
use super::{Kernel, Watched};
use crate::abi::{GemmArgs, GemmEpilogueArgs, GemmReduceScatterArgs, GemmReduceScatterEpilogueArgs};
// The rows name tiles, layouts and types of it.
use crate::config::*;
use crate::entries::{Entry, for_each_entry};

/// What to do with a kernel that takes `Args`.
pub trait KernelVisitor<Args> {
    /// What comes of it.
    type Out;

    /// Does it with `K`.
    fn visit<K: Kernel<Args = Args>>(self) -> Self::Out;
}

/// Arguments of kernels in the entry table.
pub trait KernelArgs: Copy + Watched + 'static {
    /// Calls `visitor` with the kernel of `entry`; `None` if `entry` takes other arguments.
    fn dispatch<V: KernelVisitor<Self>>(entry: &Entry, visitor: V) -> Option<V::Out>;
}

macro_rules! dispatch {
    ($($args:ident { $($name:ident: $kernel:ident, $config:ty;)* })*) => {
        $(impl KernelArgs for $args {
            fn dispatch<V: KernelVisitor<Self>>(entry: &Entry, visitor: V) -> Option<V::Out> {
                match entry.name {
                    $(stringify!($name) => {
                        Some(visitor.visit::<$kernel<$config, { <$config as TileConfig>::STAGES }, { <$config as TileConfig>::PANEL_BUFS }>>())
                    })*
                    _ => None,
                }
            }
        })*
    };
}
for_each_entry!(dispatch);
