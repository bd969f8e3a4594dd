//! Reads of shared memory by threads come before later copies into the same place only through a proxy fence between the
//! read and the arrival that frees the place. No model has proxies for shared memory: this looks at the instructions.

mod ptx_flow;

use ptx_flow::blocks;
use tilewire::kernels::entries::{ENTRIES, Op};
use tilewire::ptx;

const READS: [&str; 2] = ["ldmatrix.", "ld.shared."];
const FENCE: &str = "fence.proxy.async.shared::cta;";
const ARRIVAL: &str = "mbarrier.arrive";

/// Reads, and an arrival on a barrier that some way reaches after a read with no fence between.
fn unfenced(text: &str) -> (usize, Option<String>) {
    let (blocks, mut reads) = (blocks(text), 0);
    // Whether a block may be entered with a read that no fence has followed.
    let mut open = vec![false; blocks.len()];
    let mut changed: Vec<usize> = (0..blocks.len()).rev().collect();
    while let Some(at) = changed.pop() {
        let mut is_open = open[at];
        for line in &blocks[at].lines {
            if READS.iter().any(|read| line.contains(read)) {
                is_open = true;
            } else if line.contains(FENCE) {
                is_open = false;
            } else if line.contains(ARRIVAL) && is_open {
                return (reads, Some(line.clone()));
            }
        }
        for next in blocks[at].next.iter().filter(|_| is_open) {
            if !std::mem::replace(&mut open[*next], true) {
                changed.push(*next);
            }
        }
    }
    for line in blocks.iter().flat_map(|block| &block.lines) {
        reads += usize::from(READS.iter().any(|read| line.contains(read)));
    }
    (reads, None)
}

#[test]
fn a_fence_stands_between_reads_of_panels_and_the_arrival_that_frees_them() {
    for entry in ENTRIES {
        let least = match entry.op {
            Op::GemmReduceScatter
            | Op::GemmReduceScatterPingPong
            | Op::FewTilesReduceScatter
            | Op::GemmReduceScatterEpilogue => 4,
            // The ends of rows, and with an epilogue panels of C.
            Op::Gemm => 1,
            Op::GemmEpilogue => 2,
            // Their consumers read no panel.
            Op::GemmPingPong
            | Op::FewRowsReduceScatter
            | Op::LowLatencyReduceScatter
            | Op::FewRowsReduceScatterEpilogue
            | Op::LowLatencyReduceScatterEpilogue
            | Op::Link => continue,
        };
        let (reads, arrival) = unfenced(&ptx::only(entry).unwrap());
        assert_eq!(arrival, None, "{}: an arrival after reads with no fence between", entry.name);
        assert!(reads >= least, "{}: {reads} reads of shared memory", entry.name);
    }
}

#[test]
fn a_kernel_without_its_fences_is_caught() {
    let entry = ENTRIES.iter().find(|entry| entry.op == Op::GemmReduceScatter).unwrap();
    let text = ptx::only(entry).unwrap().replace(FENCE, "");
    assert!(unfenced(&text).1.is_some_and(|line| line.contains(ARRIVAL)), "not noticed");
}

#[test]
fn a_fence_on_only_one_of_two_ways_is_caught() {
    let text = "
.visible .entry kernel()
{
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
	@%p1 bra $L__BB0_2;
	fence.proxy.async.shared::cta;
	bra.uni $L__BB0_3;
$L__BB0_2:
	add.s32 %r1, %r1, 1;
$L__BB0_3:
	mbarrier.arrive.shared::cta.b64 _, [%r6];
	ret;
}";
    assert_eq!(unfenced(text).1.as_deref(), Some("mbarrier.arrive.shared::cta.b64 _, [%r6];"));
    // On both, in whatever order the text has them.
    let both = text.replace("add.s32 %r1, %r1, 1;", FENCE);
    assert_eq!(unfenced(&both), (1, None));
}
