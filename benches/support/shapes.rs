//! The shapes that are measured, and where they come from.

use tilewire::Layout;
use tilewire::kernels::config::Element;

/// One product.
#[derive(Clone, Debug)]
pub struct Product {
    /// What it is, or nothing for a plain size.
    pub of: &'static str,
    pub layout: Layout,
    /// M, N, K.
    pub extents: [usize; 3],
    /// Whether a quick run has it.
    pub quick: bool,
}

impl Product {
    /// Layout and extents: what a shape is called in tables and records.
    pub fn name(&self) -> String {
        let [m, n, k] = self.extents;
        format!("{} {m}×{n}×{k}", self.layout)
    }

    /// Whether the arithmetic is the bound, which is what the first goals are about.
    pub fn is_large(&self) -> bool {
        self.extents[0] >= 2048
    }
}

/// Forward products with 8192 rows (Llama 3 70B over 8 ranks: hidden size 8192, 28672 in the feed-forward layer, 64 query and
/// 8 key-value heads of 128): what it is, N, K.
const LLAMA: [(&str, usize, usize); 4] = [
    ("Llama 3 70B down", 8192, 3584),
    ("Llama 3 70B gate and up", 7168, 8192),
    ("Llama 3 70B qkv", 1280, 8192),
    ("Llama 3 70B attention out", 8192, 1024),
];

/// The same for GPT-3 175B over 8 ranks: hidden size 12288, 49152 in the feed-forward layer.
const GPT3: [(&str, usize, usize); 4] = [
    ("GPT-3 175B qkv", 4608, 12288),
    ("GPT-3 175B attention out", 12288, 1536),
    ("GPT-3 175B up", 6144, 12288),
    ("GPT-3 175B down", 12288, 6144),
];

/// Rows at which the GPT-3 products are measured: decoding one token, batches of tokens, prefill, training.
const ROWS: [usize; 6] = [1, 16, 128, 512, 2048, 8192];

/// Three extents with `x` or `×` between them.
pub fn parse_extents(text: &str) -> Result<[usize; 3], String> {
    let extents = text.split(['x', '×']).map(str::parse).collect::<Result<Vec<usize>, _>>();
    let extents = extents.ok().and_then(|extents| <[usize; 3]>::try_from(extents).ok());
    extents
        .filter(|extents| !extents.contains(&0))
        .ok_or_else(|| format!("{text:?} is not M, N and K, as in 512x8192x28672"))
}

/// Every product of the GEMM bench, or those of the extents that the user asked for.
pub fn gemm_products(asked: &[[usize; 3]]) -> Vec<Product> {
    let forward = |of, m, n, k, quick| Product { of, layout: Layout::Nt, extents: [m, n, k], quick };
    if !asked.is_empty() {
        return asked.iter().map(|[m, n, k]| forward("", *m, *n, *k, true)).collect();
    }
    let mut all = vec![
        forward("", 4096, 4096, 4096, true),
        forward("", 8192, 8192, 8192, true),
        forward("", 16384, 8192, 2048, true),
    ];
    all.extend(LLAMA.map(|(of, n, k)| forward(of, 8192, n, k, true)));
    for m in ROWS {
        all.extend(GPT3.map(|(of, n, k)| forward(of, m, n, k, n == 12288 && k == 6144)));
    }
    for (of, n, k) in LLAMA.into_iter().chain(GPT3) {
        all.extend(backward(of, 8192, n, k));
    }
    all
}

/// The backward products of Y = X · Wᵀ, with X m × k and W n × k: dX = dY · W, and dW = dYᵀ · X.
fn backward(of: &'static str, m: usize, n: usize, k: usize) -> [Product; 2] {
    let quick = k == 3584;
    [
        Product { of, layout: Layout::Nn, extents: [m, k, n], quick },
        Product { of, layout: Layout::Tn, extents: [n, k, m], quick },
    ]
}

/// Products of 8-bit operands: M, N, K; type of B; whether a quick run has it. Those listed, or those of the extents that
/// the user asked for, by e4m3.
pub fn fp8_shapes(asked: &[[usize; 3]]) -> Vec<([usize; 3], Element, bool)> {
    if !asked.is_empty() {
        return asked.iter().map(|extents| (*extents, Element::E4m3, true)).collect();
    }
    FP8.to_vec()
}

const FP8: [([usize; 3], Element, bool); 5] = [
    ([8192, 8192, 8192], Element::E4m3, true),
    ([4096, 4096, 4096], Element::E4m3, true),
    ([8192, 8192, 3584], Element::E4m3, true),
    ([8192, 8192, 8192], Element::E5m2, false),
    ([2048, 8192, 8192], Element::E4m3, false),
];

/// GEMM + ReduceScatter: M, N and K over all ranks; goal for the ratio to GEMM, then NCCL, over two ranks; whether a quick
/// run has it. Those listed, or those of the extents that the user asked for, which have no goal.
pub fn reduce_scatter_shapes(asked: &[[usize; 3]]) -> Vec<([usize; 3], Option<f64>, bool)> {
    if !asked.is_empty() {
        return asked.iter().map(|extents| (*extents, None, true)).collect();
    }
    REDUCE_SCATTER.map(|(extents, goal, quick)| (extents, Some(goal), quick)).to_vec()
}

const REDUCE_SCATTER: [([usize; 3], f64, bool); 9] = [
    ([8192, 8192, 29568], 1.15, true),
    ([8192, 8192, 28672], 1.15, false),
    ([8192, 4096, 14336], 1.22, true),
    ([8192, 8192, 4096], 1.6, true),
    ([4096, 4096, 8192], 1.35, true),
    ([2048, 8192, 28672], 1.15, false),
    ([512, 8192, 28672], 1.15, true),
    ([128, 8192, 28672], 1.15, false),
    ([16, 8192, 28672], 1.15, true),
];
