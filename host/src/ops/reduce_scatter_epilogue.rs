//! Calls of GEMM + ReduceScatter with an epilogue.

use super::epilogue::{RawEpilogue, Result2d, TensorEpilogue, not_planned};
use super::gemm_reduce_scatter::{GemmReduceScatter, RankMatrices};
use crate::error::{Error, Result};
use crate::kernels::abi::{GemmReduceScatterEpilogueArgs, Operand};
use crate::kernels::shape::{GlobalAddr, MAX_WORLD};
use crate::plan::{RankLaunch, Scales, check};
use crate::world::{RawStream, Tensor};

/// Moves an address out, and leaves none.
fn take(addr: &mut GlobalAddr) -> GlobalAddr {
    std::mem::replace(addr, GlobalAddr(0))
}

impl GemmReduceScatter {
    /// Runs one call as [`Self::run`] does, with an epilogue on each rank's rows of the sum: `epilogues[r]` on rank r.
    /// C and residual have the shape of `d[r]`, the bias is 1 × n, all of D's type; scales are 1 × 1 of f32: of 16-bit
    /// operands factors of this rank's rows of the sum, of 8-bit operands factors of this rank's partial. Each addend
    /// is added once, not once a rank.
    ///
    /// # Errors
    /// As [`Self::run`], and as [`Self::launch_with`].
    pub fn run_with(
        &self,
        m: usize,
        a: &[Tensor],
        b: &[Tensor],
        d: &mut [Tensor],
        epilogues: &[TensorEpilogue<'_>],
    ) -> Result<()> {
        let matrices = self.matrices(m, a, b, d)?;
        let (n, output) = (self.options.n as usize, self.options.variant.output);
        let raw = |(rank, e): (usize, &TensorEpilogue<'_>)| e.raw(rank, (self.rows_of(m, rank), n), output);
        let epilogues = epilogues.iter().enumerate().map(raw).collect::<Result<Vec<_>>>()?;
        // SAFETY: as in `run`, and addends have been checked like the rest.
        unsafe { self.launch_with(m, &matrices, &epilogues, None)? };
        self.finish()
    }

    /// Enqueues one call with an epilogue on each rank's rows of the sum, as [`Self::launch`] does: `epilogues[r]` on rank r,
    /// in its memory. C may lie where D does; otherwise nothing that is read may overlap D.
    ///
    /// # Errors
    /// As [`Self::launch`]; [`Error::Argument`] if the plan was built without an epilogue, their number is not that of the
    /// ranks, one adds both C and a residual, or an address or stride breaks a rule; [`Error::RanksDisagree`] if alpha, beta
    /// or the activation differ.
    ///
    /// # Safety
    /// As [`Self::launch`]; rank r's C and residual have the shape of its D, the bias has n elements, all of D's type, and
    /// they and the scales are readable on rank r until the call has ended on the stream.
    pub unsafe fn launch_with(
        &self,
        m: usize,
        matrices: &[RankMatrices],
        epilogues: &[RawEpilogue],
        streams: Option<&[RawStream]>,
    ) -> Result<()> {
        let entry = self.options.kernels.with_epilogue(m as u32).ok_or_else(not_planned)?;
        if epilogues.len() != self.world.size() {
            let rule = format!("there is one for each of {} ranks", self.world.size());
            return Err(Error::argument("number of epilogues", epilogues.len(), rule));
        }
        check::agreed("alpha", epilogues.iter().map(|e| e.alpha))?;
        check::agreed("beta", epilogues.iter().map(|e| e.beta))?;
        check::agreed("activation", epilogues.iter().map(|e| e.activation.name()))?;
        let plain = self.prepare(m, matrices, &[Scales::NONE; MAX_WORLD][..self.world.size()], entry)?;
        let mut launches = [const { None }; MAX_WORLD];
        for (launch, (plain, epilogue)) in launches.iter_mut().zip(plain.into_iter().flatten().zip(epilogues)) {
            let RankLaunch { rank, entry, mut maps, args: mut call, num_ctas, overlaps_previous } = plain;
            let result = Result2d { rank, d: matrices[rank].d, map: maps[Operand::D as usize] };
            let (mut epilogue, map) = epilogue.resolve(result)?;
            if self.options.variant.input.bytes() == 1 {
                // Ranks may have scales of their own: a rank's partial is scaled before it travels.
                call.scales = [take(&mut epilogue.scale_a), take(&mut epilogue.scale_b)];
            }
            maps[Operand::C as usize] = map;
            let args = GemmReduceScatterEpilogueArgs { call, epilogue };
            *launch = Some(RankLaunch { rank, entry, maps, args, num_ctas, overlaps_previous });
        }
        // SAFETY: the caller's.
        unsafe { self.world.launch(launches.iter().flatten(), streams) }
    }
}
