//! PTX text, read as far as stamping and checking need it: lines without comments, functions, statements.

use std::ops::Range;

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `.entry`: a kernel.
    Entry,
    /// `.func`: anything else.
    Func,
}

/// A function of the text. Lines count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Kernel or not.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Lines from the declaration up to the body's opening brace, or up to the semicolon.
    pub header: Range<usize>,
    /// Lines of the body, braces included; empty for a declaration.
    pub body: Range<usize>,
}

/// PTX text, taken apart.
#[derive(Clone, Debug)]
pub struct Ptx {
    lines: Vec<String>,
    functions: Vec<Function>,
}

impl Ptx {
    /// Takes `text` apart. Nothing is refused: what is not understood is in no function.
    pub fn new(text: &str) -> Self {
        let lines = without_comments(text);
        let mut functions = Vec::new();
        let mut at = 0;
        while at < lines.len() {
            match function_at(&lines, at) {
                Some(function) => {
                    at = function.body.end.max(function.header.end).max(at + 1);
                    functions.push(function);
                }
                None => at += 1,
            }
        }
        Self { lines, functions }
    }

    /// The lines, comments blanked.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The functions, in order.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The function that line `line` belongs to.
    pub fn function_of(&self, line: usize) -> Option<&Function> {
        self.functions.iter().find(|f| f.header.start <= line && line < f.body.end.max(f.header.end))
    }

    /// The rest of the first line that starts with `directive`, with its line.
    pub fn directive(&self, directive: &str) -> Option<(usize, &str)> {
        self.lines.iter().enumerate().find_map(|(idx, line)| Some((idx, words_after(line, directive)?)))
    }
}

/// The instructions of a line, without labels, predicates and the braces of blocks.
pub fn statements(line: &str) -> impl Iterator<Item = &str> {
    let is_brace = |c: char| c.is_whitespace() || matches!(c, '{' | '}');
    line.split(';').filter_map(move |part| {
        let mut rest = part.trim_end().trim_start_matches(is_brace);
        if let Some((label, after)) = rest.split_once(':')
            && !after.starts_with(':')
            && label.chars().all(is_name_char)
        {
            rest = after.trim_start_matches(is_brace);
        }
        if rest.starts_with('@') {
            rest = rest.split_once(char::is_whitespace)?.1.trim_start();
        }
        (!rest.is_empty()).then_some(rest)
    })
}

/// The parts of a statement's instruction: `red.add.u32 [a], 1` has `red`, `add`, `u32`.
pub fn instruction(statement: &str) -> impl Iterator<Item = &str> {
    statement.split(|c: char| c.is_whitespace() || c == '[').next().unwrap_or_default().split('.')
}

/// Whether `line` holds `word`, a directive or qualifier such as `.local`, and not only as the start of a longer one.
pub fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[at + word.len()..].starts_with(|c: char| is_name_char(c) || c == ':'))
}

/// Whether `line` names `name`, and not only inside a longer name.
pub(crate) fn has_name(line: &str, name: &str) -> bool {
    line.match_indices(name)
        .any(|(at, _)| !line[..at].ends_with(is_name_char) && !line[at + name.len()..].starts_with(is_name_char))
}

/// What follows `word` where `line` starts with it.
pub(crate) fn words_after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let rest = line.trim_start().strip_prefix(word)?;
    (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim())
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == '%'
}

fn without_comments(text: &str) -> Vec<String> {
    let mut inside = false;
    text.lines()
        .map(|line| {
            let mut code = String::with_capacity(line.len());
            let mut rest = line;
            loop {
                if inside {
                    let Some((_, after)) = rest.split_once("*/") else { break };
                    inside = false;
                    rest = after;
                    continue;
                }
                match (rest.find("//"), rest.find("/*")) {
                    (Some(to_end), block) if block.is_none_or(|block| to_end < block) => {
                        code.push_str(&rest[..to_end]);
                        break;
                    }
                    (_, Some(block)) => {
                        code.push_str(&rest[..block]);
                        inside = true;
                        rest = &rest[block + 2..];
                    }
                    _ => {
                        code.push_str(rest);
                        break;
                    }
                }
            }
            code
        })
        .collect()
}

fn function_at(lines: &[String], start: usize) -> Option<Function> {
    let first = &lines[start];
    let (kind, word) =
        [(Kind::Entry, ".entry"), (Kind::Func, ".func")].into_iter().find(|(_, w)| has_word(first, w))?;
    let ends = |line: &String| line.contains('{') || line.contains(';');
    let end = start + lines[start..].iter().position(ends).unwrap_or(lines.len() - start);
    let name = name_after(&lines[start..lines.len().min(end + 1)].join(" "), word);
    let declaration = lines.get(end).is_none_or(|line| line.find(';').is_some_and(|at| !line[..at].contains('{')));
    if declaration {
        let end = lines.len().min(end + 1);
        return Some(Function { kind, name, header: start..end, body: end..end });
    }
    let mut depth = 0i64;
    let closes = |line: &String| {
        depth += line.matches('{').count() as i64 - line.matches('}').count() as i64;
        depth <= 0
    };
    let close = lines[end..].iter().position(closes).map_or(lines.len(), |at| end + at + 1);
    Some(Function { kind, name, header: start..end, body: end..close })
}

fn name_after(header: &str, word: &str) -> String {
    let Some((_, rest)) = header.split_once(word) else { return String::new() };
    let mut rest = rest.trim_start();
    // A `.func` names what it returns first, in brackets.
    if rest.starts_with('(') {
        rest = rest.split_once(')').map_or("", |(_, after)| after).trim_start();
    }
    rest.chars().take_while(|c| is_name_char(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "// made up\n.version 8.0 /* not\n.entry here */\n.extern .func  (.param .b32 r) foo\n(\n\t.param .b64 p\n)\n;\n\
        .visible .entry a(\n\t.param .b8 p[4]\n)\n{\n\t{ .reg .b32 r; mov.b32 r, {x, y}; }\n\tret;\n}\n.func b()\n{\n}\n";

    #[test]
    fn functions_are_found_with_header_and_body() {
        let ptx = Ptx::new(TEXT);
        let found: Vec<_> = ptx.functions().iter().map(|f| (f.kind, f.name.as_str(), f.body.len())).collect();
        assert_eq!(found, [(Kind::Func, "foo", 0), (Kind::Entry, "a", 4), (Kind::Func, "b", 2)]);
        assert_eq!(ptx.functions()[1].header, 8..11);
        assert_eq!(ptx.directive(".version"), Some((1, "8.0")));
        assert_eq!(ptx.function_of(12).map(|f| f.name.as_str()), Some("a"));
        assert_eq!(ptx.function_of(1), None);
    }

    #[test]
    fn statements_lose_labels_predicates_and_braces() {
        let found: Vec<_> =
            statements("$L_1: @!%p1 bra $L_2; {red.add.u32 [x], 1; } a::b; ld.v2.b32 {%r1, %r2}, [x]; }").collect();
        assert_eq!(found, ["bra $L_2", "red.add.u32 [x], 1", "a::b", "ld.v2.b32 {%r1, %r2}, [x]"]);
        assert_eq!(instruction("red.add.u32 [x], 1").collect::<Vec<_>>(), ["red", "add", "u32"]);
    }

    #[test]
    fn words_end_where_names_end() {
        assert!(has_word("ld.local.u32 x;", ".local") && has_word(".local", ".local"));
        assert!(!has_word(".localize", ".local") && !has_word(".shared::cta", ".shared"));
        assert!(has_name("call foo;", "foo") && !has_name("call foo_2;", "foo"));
    }

    #[test]
    fn text_without_an_end_is_taken_to_the_last_line() {
        for text in ["", ".entry", ".entry a(", ".entry a()\n{\n ret;", "/*", ".func (", "\u{e9}.entry"] {
            let ptx = Ptx::new(text);
            assert!(ptx.functions().iter().all(|f| f.body.end <= ptx.lines().len()), "{text}");
        }
    }
}
