//! Instructions for whole warps (`.aligned`) stand in no place that some lanes of a warp reach without the others. A compiler
//! that knows nothing of them may put copies of one behind both ways of a branch that lanes take differently; kernels then
//! stop for ever, and no watchdog sees it. The emulator has no lanes: this looks at the instructions.

mod ptx_flow;

use std::collections::BTreeSet;

use ptx_flow::{Block, blocks, registers};
use tilewire::kernels::entries::ENTRIES;
use tilewire::ptx;

/// Registers whose value may differ between the lanes of a warp: all that comes from `%tid.x` but what is the same for each 32.
fn of_lanes(text: &str) -> BTreeSet<&str> {
    let (mut lanes, mut thread) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let before = lanes.len() + thread.len();
        for line in text.lines().map(str::trim) {
            let Some((op, operands)) = line.split_once(char::is_whitespace) else { continue };
            if op.starts_with('@') || op.starts_with('.') || op.starts_with("shfl") || op.starts_with("vote") {
                // What is shuffled here is broadcast, and votes are one answer.
                continue;
            }
            // Loads and wgmmas have lists of destinations.
            let split = if operands.starts_with('{') { operands.find('}') } else { operands.find(',') };
            let Some((to, from)) = split.map(|at| operands.split_at(at)) else { continue };
            let from_registers = registers(from);
            if from_registers == ["tid.x"] {
                thread.extend(registers(to));
                continue;
            }
            let number = from.rsplit(',').next().and_then(|last| last.trim().trim_end_matches(';').parse::<u64>().ok());
            let of_thread = from_registers.iter().any(|register| thread.contains(register));
            let whole_warps = match number {
                Some(bits) if op.starts_with("shr") => bits >= 5,
                Some(mask) if op.starts_with("and") => mask % 32 == 0,
                Some(limit) if op.starts_with("setp.lt") || op.starts_with("setp.gt") => (limit + 1) % 32 <= 1,
                _ => false,
            };
            if from_registers.iter().any(|register| lanes.contains(register)) || of_thread && !whole_warps {
                lanes.extend(registers(to));
            }
        }
        if lanes.len() + thread.len() == before {
            return lanes;
        }
    }
}

/// For each block those that every way from it to the end passes, itself included.
fn passed_by_every_way(blocks: &[Block]) -> Vec<BTreeSet<usize>> {
    let all: BTreeSet<usize> = (0..blocks.len()).collect();
    let mut passed = vec![all; blocks.len()];
    loop {
        let mut changed = false;
        for at in (0..blocks.len()).rev() {
            let mut ways = blocks[at].next.iter().map(|next| passed[*next].clone());
            let mut now = ways.next().map_or_else(BTreeSet::new, |first| ways.fold(first, |a, b| &a & &b));
            now.insert(at);
            changed |= now != passed[at];
            passed[at] = now;
        }
        if !changed {
            return passed;
        }
    }
}

/// The first instruction for whole warps that only some lanes of one may reach, with the branch's predicate; and how many
/// branches lanes take differently.
fn parted(text: &str) -> (usize, Option<String>) {
    let (lanes, blocks) = (of_lanes(text), blocks(text));
    let passed = passed_by_every_way(&blocks);
    let mut branches = 0;
    for (at, block) in blocks.iter().enumerate() {
        let Some(predicate) = block.predicate.as_deref().filter(|predicate| lanes.contains(predicate)) else {
            continue;
        };
        branches += 1;
        let (mut seen, mut open) = (BTreeSet::new(), block.next.clone());
        while let Some(next) = open.pop() {
            // Where the ways meet again, all lanes do.
            if passed[at].contains(&next) || !seen.insert(next) {
                continue;
            }
            if let Some(line) = blocks[next].lines.iter().find(|line| line.contains(".aligned")) {
                return (branches, Some(format!("{line} behind %{predicate}")));
            }
            open.extend(&blocks[next].next);
        }
    }
    (branches, None)
}

#[test]
fn instructions_for_whole_warps_are_reached_by_whole_warps() {
    for entry in ENTRIES {
        let (branches, found) = parted(&ptx::only(entry).unwrap());
        assert_eq!(found, None, "{}", entry.name);
        assert!(branches > 0, "{}: no branch by lane was recognised", entry.name);
    }
}

#[test]
fn a_copy_behind_each_way_is_caught() {
    // What LLVM made of an elected arrival followed by a wait.
    let text = "
.visible .entry kernel()
{
	mov.u32 %r1, %tid.x;
	and.b32 %r2, %r1, 31;
	setp.ne.b32 %p1, %r2, 0;
$L__BB0_1:
	wgmma.commit_group.sync.aligned;
	@%p1 bra $L__BB0_3;
	bra.uni $L__BB0_2;
$L__BB0_2:
	mbarrier.arrive.shared::cta.b64 _, [%r3];
	wgmma.wait_group.sync.aligned 0;
	bra.uni $L__BB0_4;
$L__BB0_3:
	wgmma.wait_group.sync.aligned 0;
$L__BB0_4:
	setp.ne.b32 %p2, %r4, 0;
	@%p2 bra $L__BB0_1;
	ret;
}";
    let (branches, found) = parted(text);
    assert_eq!((branches, found.as_deref()), (1, Some("wgmma.wait_group.sync.aligned 0; behind %p1")));
    // The wait where both ways meet, or behind a branch that warps take as one.
    let met = text
        .replacen("	wgmma.wait_group.sync.aligned 0;\n", "", 2)
        .replace("$L__BB0_4:\n", "$L__BB0_4:\n	wgmma.wait_group.sync.aligned 0;\n");
    assert_eq!(parted(&met), (1, None));
    assert_eq!(parted(&text.replace("and.b32 %r2, %r1, 31;", "and.b32 %r2, %r1, 96;")), (0, None));
}
