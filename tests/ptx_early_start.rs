//! A kernel that may start before the one ahead has ended touches global memory only behind `griddepcontrol.wait`, on every way
//! there is. The contract on the PTX reads its text from top to bottom; here each role's way is followed.

mod ptx_flow;

use ptx_flow::blocks;
use tilewire::kernels::entries::ENTRIES;
use tilewire::ptx;

const WAIT: &str = "griddepcontrol.wait";

/// The barrier of the whole CTA. Behind the second one every role has waited for every other, and so for the kernel ahead.
const OF_THE_CTA: &str = "barrier.sync 0;";

/// Accesses of global memory, and one that some way reaches without a wait.
fn unwaited(text: &str) -> (usize, Option<String>) {
    let blocks = blocks(text);
    // Ways on which nobody has waited yet: a block, and how many barriers of the CTA lie behind.
    let mut seen = vec![[false; 2]; blocks.len()];
    let mut ways = vec![(0, 0)];
    while let Some((at, mut barriers)) = ways.pop() {
        if std::mem::replace(&mut seen[at][barriers], true) {
            continue;
        }
        let mut has_waited = false;
        for line in &blocks[at].lines {
            barriers += usize::from(line.contains(OF_THE_CTA));
            has_waited |= line.contains(WAIT) || barriers > 1;
            if !has_waited && line.contains(".global") {
                return (0, Some(line.clone()));
            }
        }
        if !has_waited {
            ways.extend(blocks[at].next.iter().map(|next| (*next, barriers)));
        }
    }
    let accesses = blocks.iter().flat_map(|block| &block.lines).filter(|line| line.contains(".global")).count();
    (accesses, None)
}

#[test]
fn no_role_touches_global_memory_before_the_kernel_ahead_has_ended() {
    let mut seen = 0;
    for entry in ENTRIES.iter().filter(|entry| entry.overlaps_previous) {
        let (accesses, access) = unwaited(&ptx::only(entry).unwrap());
        assert_eq!(access, None, "{}: an access with no wait ahead of it", entry.name);
        assert!(accesses > 4, "{}: {accesses} accesses of global memory", entry.name);
        seen += 1;
    }
    assert!(seen > 100, "{seen} kernels that may start early");
}

#[test]
fn a_role_that_does_not_wait_is_caught() {
    let entry = ENTRIES.iter().find(|entry| entry.overlaps_previous).unwrap();
    let text = ptx::only(entry).unwrap();
    let waits = text.matches(WAIT).count();
    assert!(waits >= 3, "{waits} waits");
    // Each of them is needed by some role.
    let mut caught = 0;
    for nth in 0..waits {
        let (at, _) = text.match_indices(WAIT).nth(nth).unwrap();
        let without = format!("{}membar.cta{}", &text[..at], &text[at + WAIT.len()..]);
        caught += usize::from(unwaited(&without).1.is_some());
    }
    assert!(caught >= 2, "{caught} of {waits} roles were missed");
}
