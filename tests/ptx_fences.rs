//! Reads of shared memory by threads come before later copies into the same place only through a proxy fence between the
//! read and the arrival that frees the place. No model has proxies for shared memory: this looks at the instructions.

use tilewire::kernels::entries::{ENTRIES, Op};
use tilewire::ptx;

const READS: [&str; 2] = ["ldmatrix.", "ld.shared."];
const FENCE: &str = "fence.proxy.async.shared::cta;";
const ARRIVAL: &str = "mbarrier.arrive";

/// Reads, and the first line that arrives on a barrier after reads with no fence since.
fn unfenced(text: &str) -> (usize, Option<String>) {
    let (mut reads, mut open) = (0, false);
    for line in text.lines() {
        if READS.iter().any(|read| line.contains(read)) {
            (reads, open) = (reads + 1, true);
        } else if line.contains(FENCE) {
            open = false;
        } else if line.contains(ARRIVAL) && open {
            return (reads, Some(line.trim().to_string()));
        }
    }
    (reads, None)
}

#[test]
fn a_fence_stands_between_reads_of_panels_and_the_arrival_that_frees_them() {
    for entry in ENTRIES {
        let least = match entry.op {
            Op::GemmReduceScatter | Op::GemmReduceScatterPingPong | Op::GemmReduceScatterEpilogue => 4,
            // The ends of rows, and with an epilogue panels of C.
            Op::Gemm => 1,
            Op::GemmEpilogue => 2,
            // Their consumers read no panel.
            Op::GemmPingPong | Op::FewRowsReduceScatter | Op::Link => continue,
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
