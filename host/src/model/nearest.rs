//! Which names of a file come nearest to a pattern: for errors that help.

/// Up to `count` of `names`, those whose end is nearest to one of `suffixes` first; ties in order of name.
pub(super) fn nearest<'a>(names: impl Iterator<Item = &'a str>, suffixes: &[&str], count: usize) -> Vec<&'a str> {
    let distance = |name: &str| suffixes.iter().map(|s| distance_to_end(s, name)).min().unwrap_or(0);
    let mut ranked: Vec<_> = names.map(|name| (distance(name), name)).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(count).map(|(_, name)| name).collect()
}

/// Fewest insertions, deletions and substitutions of bytes that turn `suffix` into some end of `name`.
fn distance_to_end(suffix: &str, name: &str) -> usize {
    // Both reversed, an end becomes a beginning: row i, column j is the distance of the first i and the first j bytes.
    let name = name.as_bytes();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, s) in suffix.bytes().rev().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, n) in name.iter().rev().enumerate() {
            let substituted = diagonal + usize::from(s != *n);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.into_iter().min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_that_of_the_nearest_end() {
        assert_eq!(distance_to_end("down_proj.weight", "layers.0.mlp.down_proj.weight"), 0);
        assert_eq!(distance_to_end("down_proj.weight", "layers.0.mlp.down_pro.weight"), 1);
        assert_eq!(distance_to_end("abc", ""), 3);
        assert_eq!(distance_to_end("", "abc"), 0);
    }

    #[test]
    fn the_nearest_names_come_first() {
        let names = ["a.bias", "layer.down_proj.bias", "layer.down_projection.weight", "x"];
        let found = nearest(names.into_iter(), &["down_proj.weight"], 2);
        assert_eq!(found, ["layer.down_proj.bias", "layer.down_projection.weight"]);
    }
}
