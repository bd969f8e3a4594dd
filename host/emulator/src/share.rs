//! Accumulators that pass from one CTA to another through global memory, row by row.

use super::access::Proxy;
use super::agent::Agent;
use super::memory::Scope;
use super::mma::Accumulator;
use super::violation::{Failure, Violation};
use crate::kernels::collective::share::acc_bytes;
use crate::kernels::config::TileConfig;
use crate::kernels::machine::ShareAcc;
use crate::kernels::shape::GlobalAddr;

impl<C: TileConfig> ShareAcc<C> for Agent<'_> {
    fn store_acc(&self, dst: GlobalAddr, acc: &Accumulator) {
        self.op(|w, me| {
            w.must_be_warpgroup(me, "store_acc")?;
            let bytes: Vec<u8> = acc.settled("store_acc")?.iter().flat_map(|v| v.to_le_bytes()).collect();
            aligned(dst)?;
            w.global_write(dst, bytes.len() as u64, w.own_mark(me), Proxy::Generic)?;
            w.memory.bytes_mut(dst, bytes.len() as u64)?.copy_from_slice(&bytes);
            Ok(())
        });
    }

    fn add_acc(&self, src: GlobalAddr, acc: &mut Accumulator) {
        self.op(|w, me| {
            w.must_be_warpgroup(me, "add_acc")?;
            aligned(src)?;
            w.global_read(src, acc_bytes::<C>(), w.own_mark(me), Proxy::Generic)?;
            let words = w.memory.bytes(src, acc_bytes::<C>())?.chunks_exact(4);
            let mut values = acc.settled("add_acc")?;
            for (value, word) in values.iter_mut().zip(words) {
                *value += f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            }
            Ok(())
        });
    }

    fn publish(&self, addr: GlobalAddr, value: u32) {
        self.op(|w, me| {
            w.must_be_warpgroup(me, "publish")?;
            w.store_release(me, addr, value, Scope::Gpu)
        });
    }
}

fn aligned(addr: GlobalAddr) -> Result<(), Failure> {
    if addr.0.is_multiple_of(16) {
        return Ok(());
    }
    Err(Failure::new(Violation::Misaligned, format!("an accumulator at {:#x}, which is no multiple of 16", addr.0)))
}
