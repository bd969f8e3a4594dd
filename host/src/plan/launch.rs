//! One kernel launch on one rank, for whichever machine runs it.

use super::operand::MapSpec;
use crate::kernels::abi::MAPS;
use crate::kernels::entries::Entry;

/// A launch: the entry, its operands, its arguments, its grid.
#[derive(Clone, Copy, Debug)]
pub struct RankLaunch<Args> {
    /// Rank that launches.
    pub rank: usize,
    /// Compiled kernel.
    pub entry: &'static Entry,
    /// What the tensor maps of A, B, D and C describe; `None` where the kernel touches nothing.
    pub maps: [Option<MapSpec>; MAPS],
    /// Arguments after the tensor maps.
    pub args: Args,
    /// CTAs.
    pub num_ctas: u32,
    /// Whether it may start before the kernel ahead of it in its stream has ended, where the kernel can.
    pub overlaps_previous: bool,
}
