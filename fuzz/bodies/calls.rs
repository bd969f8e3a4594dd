//! Plans and calls on the emulator.

use std::time::Duration;

use tilewire::emulator::EmulatorOptions;
use tilewire::kernels::abi::{Placement, Transport};
use tilewire::kernels::config::Element;
use tilewire::ops::{Gemm, GemmBuilder, GemmReduceScatter, RankMatrices};
use tilewire::world::{Buffer, EmulatedOptions};
use tilewire::{Error, Layout, MatrixArg, Variant, World};

use super::input::Input;

/// Memory of an emulated world: plans that need more are refused.
const MEMORY_BYTES: u64 = 16 << 20;

fn world(input: &mut Input, ranks: usize) -> Result<World, Error> {
    let emulator = EmulatorOptions { memory_bytes: MEMORY_BYTES, ..EmulatorOptions::with_seed(0) };
    let ctas_per_rank = u32::from(input.byte() % 4);
    World::emulated_with(ranks, EmulatedOptions { ctas_per_rank, emulator, ..EmulatedOptions::default() })
}

fn variant(input: &mut Input) -> Variant {
    use Element as E;
    let element = |input: &mut Input| input.pick([E::Bf16, E::Bf16, E::F16, E::F32, E::E4m3, E::E5m2]);
    let (layout, a, output) = (input.pick(Layout::ALL), element(input), element(input));
    // Mostly one type for both, so that plans are built.
    let b = if input.0.len() % 16 == 15 { element(input) } else { a };
    Variant { layout, input: a, input_b: b, output }
}

fn reduce_scatter(input: &mut Input, world: &World, shape: [usize; 3]) -> Result<GemmReduceScatter, Error> {
    let [m, n, k] = shape;
    GemmReduceScatter::builder(world)
        .shape(m, n, k)
        .variant(variant(input))
        .transport(input.pick([Transport::Push, Transport::Staged, Transport::PushStores]))
        .placement(input.pick([Placement::Epilogue, Placement::Partition]))
        .sm_margin(input.pick([0, 0, 1, 2, 3, u32::MAX]))
        .raster_group(input.pick([16, 1, 0, u32::MAX]))
        .deadline(input.pick([Duration::from_secs(10), Duration::ZERO, Duration::MAX]))
        .first_epoch(input.pick([1, 0, u32::MAX, 1 << 31]))
        .build()
}

fn gemm<'w>(input: &mut Input, world: &'w World, rank: usize, shape: [usize; 3]) -> GemmBuilder<'w> {
    let [m, n, k] = shape;
    Gemm::builder(world, rank)
        .shape(m, n, k)
        .variant(variant(input))
        .sm_margin(input.pick([0, 0, 1, 2, 3, u32::MAX]))
        .raster_group(input.pick([16, 1, 0, u32::MAX]))
}

/// An error that a user may get for what is only an argument: it says something.
fn is_said(error: &Error) {
    assert!(!error.to_string().is_empty() && !matches!(error, Error::Emulator(_) | Error::Fault(_)), "{error:?}");
}

/// Builder arguments end in a plan or in an error that names one.
pub fn plan(data: &[u8]) {
    let mut input = Input(data);
    let ranks = input.pick([1, 2, 3, 4, 5, 6, 7, 8, 0, 9, usize::MAX]);
    let world = match world(&mut input, ranks) {
        Ok(world) => world,
        Err(error) => return is_said(&error),
    };
    let shape = [input.extent(), input.extent(), input.extent()];
    if input.byte() % 2 == 0 {
        match reduce_scatter(&mut input, &world, shape) {
            Ok(plan) => assert!(plan.workspace_bytes() <= MEMORY_BYTES, "{shape:?}"),
            Err(error) => is_said(&error),
        }
    } else {
        let rank = usize::from(input.byte() % 10);
        let builder = gemm(&mut input, &world, rank, shape);
        let tile_cols = input.pick([None, None, Some(8), Some(48), Some(7), Some(0), Some(u32::MAX)]);
        let builder = tile_cols.into_iter().fold(builder, |builder, cols| builder.tile_cols(cols));
        builder.build().map_or_else(|error| is_said(&error), drop);
    }
}

/// A matrix anywhere: null, inside a buffer of the rank, or at any address, with any stride.
fn matrix(input: &mut Input, buffer: &Buffer) -> MatrixArg {
    let addr = match input.byte() % 8 {
        0 => 0,
        1 => input.u64(),
        2 => buffer.addr().0 + u64::from(input.u16()),
        3 => (buffer.addr().0 + buffer.bytes()) - u64::from(input.u16()),
        _ => buffer.addr().0 + 16 * u64::from(input.byte()),
    };
    let row_stride = match input.byte() % 4 {
        0 => input.u64(),
        1 => u64::from(input.u16()),
        _ => 8 * u64::from(input.byte()),
    };
    MatrixArg { addr, row_stride }
}

/// Whatever addresses, strides and rows a call is given, it is refused, or it runs and keeps every rule of the machine but
/// those that are the caller's: memory that is there and written, and matrices that do not overlap.
pub fn operands(data: &[u8]) {
    const BYTES: u64 = 1 << 17;
    let mut input = Input(data);
    let ranks = usize::from(input.byte() % 3) + 1;
    let Ok(world) = world(&mut input, ranks) else { return };
    let shape = [input.byte(), input.byte(), input.byte()].map(usize::from);
    let buffers: Vec<[Buffer; 3]> =
        (0..ranks).map(|rank| std::array::from_fn(|_| world.allocate(rank, BYTES).expect("there is memory"))).collect();
    for buffer in buffers.iter().flatten() {
        world.emulated_write(buffer.addr(), &vec![0; BYTES as usize]).expect("the buffer is there");
    }
    let is_gemm = input.byte() % 2 == 0;
    let matrices = |input: &mut Input, rank: usize| RankMatrices {
        a: matrix(input, &buffers[rank][0]),
        b: matrix(input, &buffers[rank][1]),
        d: matrix(input, &buffers[rank][2]),
    };
    let ended = if is_gemm {
        let Ok(plan) = gemm(&mut input, &world, 0, shape).build() else { return };
        let (m, given) = (input.extent(), matrices(&mut input, 0));
        // SAFETY: emulated memory: an address that is not there is an error of the emulator.
        unsafe { plan.launch(m, &given, None) }.and_then(|()| plan.finish())
    } else {
        let Ok(plan) = reduce_scatter(&mut input, &world, shape) else { return };
        let m = input.extent();
        let count = if input.byte() == 1 { ranks + 1 } else { ranks };
        let given: Vec<_> = (0..count).map(|rank| matrices(&mut input, rank % ranks)).collect();
        // SAFETY: as above.
        unsafe { plan.launch(m, &given, None) }.and_then(|()| plan.finish())
    };
    match ended {
        Err(Error::Emulator(error)) => {
            use tilewire::emulator::Violation as V;
            let is_callers = matches!(error.violation, V::OutOfBounds | V::Race | V::ReadOfUnwrittenGlobal);
            assert!(is_callers, "{error}");
        }
        Err(error) => assert!(!matches!(error, Error::Fault(_)) && !error.to_string().is_empty(), "{error}"),
        Ok(()) => {}
    }
}
