//! The PTX of a kernel as a graph of runs of instructions.

use std::collections::BTreeMap;

/// A run of instructions that is entered at its start and left at its end.
#[derive(Default)]
pub struct Block {
    /// Its instructions, but the branch that ends it.
    pub lines: Vec<String>,
    /// Where it goes on.
    pub next: Vec<usize>,
    /// The predicate of the branch that ends it, if it has two ways.
    #[allow(dead_code, reason = "each test program uses a part")]
    pub predicate: Option<String>,
}

/// Registers in a piece of text.
pub fn registers(text: &str) -> Vec<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let after_percent = text.split('%').skip(1);
    after_percent.map(|rest| &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())]).collect()
}

/// The runs of a kernel, the first one first.
pub fn blocks(text: &str) -> Vec<Block> {
    let body = text.lines().map(str::trim).skip_while(|line| *line != "{").skip(1);
    let (mut blocks, mut labels, mut targets) = (vec![Block::default()], BTreeMap::new(), Vec::new());
    let mut falls_through = true;
    for line in body {
        let at = blocks.len() - 1;
        if let Some(label) = line.strip_suffix(':').filter(|label| label.starts_with('$')) {
            blocks.push(Block::default());
            labels.insert(label.to_string(), at + 1);
            if falls_through {
                blocks[at].next.push(at + 1);
            }
            falls_through = true;
        } else if let Some((guard, target)) = line.split_once("bra").filter(|_| line.ends_with(';')) {
            let target = target.trim_start_matches(".uni").trim().trim_end_matches(';');
            targets.push((at, target.to_string()));
            blocks.push(Block::default());
            falls_through = guard.starts_with('@');
            if falls_through {
                blocks[at].predicate = registers(guard).first().map(ToString::to_string);
                blocks[at].next.push(at + 1);
            }
        } else if line == "ret;" || line == "exit;" {
            blocks.push(Block::default());
            falls_through = false;
        } else {
            blocks[at].lines.push(line.to_string());
        }
    }
    for (at, target) in targets {
        blocks[at].next.push(labels[&target]);
    }
    blocks
}
