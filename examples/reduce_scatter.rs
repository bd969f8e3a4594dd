//! GEMM + ReduceScatter over four ranks: on a Hopper GPU if there is one, else on the CPU emulator.

use half::bf16;
use tilewire::ops::GemmReduceScatter;
use tilewire::{Error, Result, Tensor, World, data};

const RANKS: usize = 4;

fn main() -> Result<()> {
    // Four ranks on GPU 0, each on a quarter of its SMs; without such a GPU, four on the CPU.
    let world = match World::virtual_ranks(0, RANKS) {
        Err(Error::NoGpu { .. }) => World::emulated(RANKS)?,
        opened => opened?,
    };

    // K is sharded: rank r holds A_r, m × k, and B_r, n × k. The plan is built once for at most m rows a call.
    let (m, n, k) = (200, 256, 128);
    let plan = GemmReduceScatter::builder(&world).shape(m, n, k).build()?;

    // Small integers: every sum is exact, so the result can be compared with ==.
    let host_a: Vec<_> = (0..RANKS).map(|rank| data::integers::<bf16>(m, k, rank as u64, 1)).collect();
    let host_b: Vec<_> = (0..RANKS).map(|rank| data::integers::<bf16>(n, k, 100 + rank as u64, 1)).collect();
    let (mut a, mut b, mut d) = (Vec::new(), Vec::new(), Vec::new());
    for rank in 0..RANKS {
        a.push(Tensor::from_slice(&world, rank, m, k, host_a[rank].data())?);
        b.push(Tensor::from_slice(&world, rank, n, k, host_b[rank].data())?);
        d.push(Tensor::poisoned::<bf16>(&world, rank, plan.rows_of(m, rank), n)?);
    }

    // Rank d ends with its rows of A_0·B_0ᵀ + A_1·B_1ᵀ + A_2·B_2ᵀ + A_3·B_3ᵀ.
    plan.run(m, &a, &b, &mut d)?;

    // Row 0 belongs to rank 0, the last row to the last rank.
    let (first, last) = (d[0].to_vec::<bf16>()?, d[RANKS - 1].to_vec::<bf16>()?);
    let expected = |row: usize, col: usize| -> f32 {
        let dot = |rank: usize| -> f32 {
            let (x, y) = (host_a[rank].view().row(row), host_b[rank].view().row(col));
            x.iter().zip(y).map(|(x, y)| x.to_f32() * y.to_f32()).sum()
        };
        (0..RANKS).map(dot).sum()
    };
    for col in 0..n {
        assert_eq!(first[col].to_f32(), expected(0, col));
        assert_eq!(last[last.len() - n + col].to_f32(), expected(m - 1, col));
    }
    println!("{}: rows {} and {} are right", world.describe(), 0, m - 1);
    Ok(())
}
