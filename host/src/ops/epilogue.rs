//! What becomes of a product before it is stored: factors, addends, activation.

use crate::error::{Error, Result};
pub use crate::kernels::abi::Activation;
use crate::kernels::abi::{EpilogueArgs, Source};
use crate::kernels::config::Element;
use crate::kernels::shape::GlobalAddr;
use crate::plan::operand::{MapSpec, MatrixArg, MatrixRole};
use crate::world::Tensor;

/// `D = act(alpha · scale_a · scale_b · (A · B) + beta · C + bias) + residual`, computed in f32 and rounded once.
///
/// `M` is a matrix and `V` a vector or scalar: [`RawEpilogue`] has addresses, [`TensorEpilogue`] owned tensors. After a
/// reduction the product is the sum over ranks, so that bias, C and residual are added once.
///
/// ```
/// use tilewire::ops::{Activation, RawEpilogue};
/// let epilogue = RawEpilogue::default().alpha(0.5).activation(Activation::GeluTanh);
/// assert_eq!((epilogue.alpha, epilogue.beta), (0.5, 0.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue<M, V> {
    /// Factor of the product; 1 unless told otherwise.
    pub alpha: f32,
    /// Factor of C; 0 unless told otherwise, and then C is not read, whatever it holds.
    pub beta: f32,
    /// What is applied to the sum; nothing unless told otherwise.
    pub activation: Activation,
    /// C, of D's shape and type. Where there is none and beta is not 0, C is what D holds.
    pub c: Option<M>,
    /// Added after the activation: of D's shape and type. Not together with a beta that is not 0.
    pub residual: Option<M>,
    /// One element of D's type for each column.
    pub bias: Option<V>,
    /// One f32 on the device: the scale of A.
    pub scale_a: Option<V>,
    /// One f32 on the device: the scale of B.
    pub scale_b: Option<V>,
}

/// An epilogue on raw memory: matrices with strides, and addresses. The bias starts at a multiple of 16 bytes.
pub type RawEpilogue = Epilogue<MatrixArg, u64>;
/// An epilogue on owned tensors: the bias is 1 × n, scales are 1 × 1.
pub type TensorEpilogue<'a> = Epilogue<&'a Tensor, &'a Tensor>;

impl<M, V> Default for Epilogue<M, V> {
    fn default() -> Self {
        Self {
            alpha: 1.0,
            beta: 0.0,
            activation: Activation::None,
            c: None,
            residual: None,
            bias: None,
            scale_a: None,
            scale_b: None,
        }
    }
}

impl<M, V> Epilogue<M, V> {
    /// With this factor of the product.
    pub fn alpha(self, alpha: f32) -> Self {
        Self { alpha, ..self }
    }

    /// With this factor of what D holds, or of C where [`Self::c`] gives one.
    pub fn beta(self, beta: f32) -> Self {
        Self { beta, ..self }
    }

    /// With this C.
    pub fn c(self, c: M) -> Self {
        Self { c: Some(c), ..self }
    }

    /// With this activation.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// With this matrix added after the activation.
    pub fn residual(self, residual: M) -> Self {
        Self { residual: Some(residual), ..self }
    }

    /// With this bias.
    pub fn bias(self, bias: V) -> Self {
        Self { bias: Some(bias), ..self }
    }

    /// With these scales of A and B.
    pub fn scales(self, a: V, b: V) -> Self {
        Self { scale_a: Some(a), scale_b: Some(b), ..self }
    }
}

impl TensorEpilogue<'_> {
    /// The same on raw memory, for rows × n elements of type `output` on `rank`.
    pub(super) fn raw(&self, rank: usize, (rows, n): (usize, usize), output: Element) -> Result<RawEpilogue> {
        let matrix = |name: &str, tensor: Option<&Tensor>| -> Result<Option<MatrixArg>> {
            let Some(tensor) = tensor else { return Ok(None) };
            tensor.expect(name, rank, (rows, n), output)?;
            Ok(Some(tensor.arg()))
        };
        let vector = |name: &str, tensor: Option<&Tensor>, len, element| -> Result<Option<u64>> {
            let Some(tensor) = tensor else { return Ok(None) };
            tensor.expect(name, rank, (1, len), element)?;
            Ok(Some(tensor.arg().addr))
        };
        Ok(RawEpilogue {
            alpha: self.alpha,
            beta: self.beta,
            activation: self.activation,
            c: if self.beta == 0.0 { None } else { matrix("c", self.c)? },
            residual: matrix("residual", self.residual)?,
            bias: vector("bias", self.bias, n, output)?,
            scale_a: vector("scale_a", self.scale_a, 1, Element::F32)?,
            scale_b: vector("scale_b", self.scale_b, 1, Element::F32)?,
        })
    }
}

/// Where the result goes: what C must fit.
#[derive(Clone, Copy)]
pub(super) struct Result2d {
    pub rank: usize,
    pub d: MatrixArg,
    /// What D's tensor map describes, if D is not empty.
    pub map: Option<MapSpec>,
}

impl RawEpilogue {
    /// Arguments for the kernels, and the tensor map of what is added.
    ///
    /// # Errors
    /// [`Error::Argument`] for C or a residual that the copy engine cannot take, for both of them, for a null or misaligned
    /// bias or scale.
    pub(super) fn resolve(&self, result: Result2d) -> Result<(EpilogueArgs, Option<MapSpec>)> {
        let Result2d { rank, d, map } = result;
        if self.beta != 0.0 && self.residual.is_some() {
            let rule = "one matrix can be added: beta · C before the activation, or a residual after it with beta = 0";
            return Err(Error::argument("beta", self.beta, rule));
        }
        let (source, name, added) = match self.residual {
            Some(residual) => (Source::Residual, "residual", residual),
            None if self.beta != 0.0 => (Source::Scaled, "C", self.c.unwrap_or(d)),
            None => (Source::None, "C", d),
        };
        let map = match map {
            Some(of_d) if source != Source::None => {
                let shape = (of_d.rows as usize, of_d.cols as usize);
                added.describe(MatrixRole { name, rank }, shape, of_d.element, of_d.tile_box)?
            }
            _ => None,
        };
        let element_bytes = map.map_or(0, |map| u64::from(map.element.bytes()));
        let args = EpilogueArgs {
            alpha: self.alpha,
            beta: if source == Source::Scaled { self.beta } else { 0.0 },
            activation: self.activation as u32,
            source: source as u32,
            bias: address("bias", rank, self.bias, 16)?,
            scale_a: address("scale of A", rank, self.scale_a, 4)?,
            scale_b: address("scale of B", rank, self.scale_b, 4)?,
            c: GlobalAddr(if source == Source::None { 0 } else { added.addr }),
            c_stride: added.row_stride * element_bytes,
        };
        Ok((args, map))
    }
}

/// An optional address as kernels take it; 0 is none.
fn address(name: &str, rank: usize, addr: Option<u64>, align: u64) -> Result<GlobalAddr> {
    let Some(addr) = addr else { return Ok(GlobalAddr(0)) };
    let what = format!("address of {name} on rank {rank}");
    if addr == 0 {
        return Err(Error::argument(what, "null", "what is not there is left out"));
    }
    if !addr.is_multiple_of(align) {
        return Err(Error::argument(what, format!("{addr:#x}"), format!("it must be a multiple of {align} bytes")));
    }
    Ok(GlobalAddr(addr))
}

/// The error for a call with an epilogue on a plan without.
pub(super) fn not_planned() -> Error {
    Error::argument("epilogue", "given", "the plan was built without: call with_epilogue() on its builder")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::config::TileBox;
    use crate::plan::operand::L2Fetch;

    fn result() -> Result2d {
        let tile_box = TileBox { rows: 64, count: 1 };
        let map = MapSpec {
            addr: 4096,
            rows: 3,
            cols: 8,
            row_stride_bytes: 16,
            element: Element::Bf16,
            tile_box,
            box_row_bytes: 128,
            fetch: L2Fetch::default(),
        };
        Result2d { rank: 1, d: MatrixArg { addr: 4096, row_stride: 8 }, map: Some(map) }
    }

    #[test]
    fn c_is_d_where_none_is_given_and_beta_zero_gives_none() {
        let (args, map) = RawEpilogue::default().beta(0.5).resolve(result()).unwrap();
        assert_eq!((args.source, args.c, args.c_stride), (Source::Scaled as u32, GlobalAddr(4096), 16));
        assert_eq!(map, result().map);
        for beta in [0.0, -0.0] {
            let wild = MatrixArg { addr: 3, row_stride: 0 };
            let (args, map) = RawEpilogue::default().beta(beta).c(wild).resolve(result()).unwrap();
            assert_eq!((args.source, args.c, map), (0, GlobalAddr(0), None));
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let residual = MatrixArg { addr: 8192, row_stride: 8 };
        let text = |e: RawEpilogue| e.resolve(result()).unwrap_err().to_string();
        let both = text(RawEpilogue::default().beta(1.0).residual(residual));
        assert!(both.contains("beta is 1") && both.contains("one matrix"), "{both}");
        let narrow = text(RawEpilogue::default().residual(MatrixArg { row_stride: 4, ..residual }));
        assert!(narrow.contains("row stride of residual on rank 1"), "{narrow}");
        let bias = text(RawEpilogue::default().bias(0x1008));
        assert!(bias.contains("address of bias on rank 1") && bias.contains("0x1008"), "{bias}");
        assert!(text(RawEpilogue::default().scales(0, 4)).contains("scale of A"));
    }
}
