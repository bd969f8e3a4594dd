//! Stub while the emulator is on its way.
use crate::error::{Error, Result};
use crate::kernels::abi::FaultRecord;
use crate::kernels::kernels::Kernel;
use crate::kernels::shape::GlobalAddr;
use crate::plan::RankLaunch;

/// Options
#[derive(Clone, Debug, Default)]
pub struct EmulatedOptions {}
#[derive(Debug)]
pub struct EmulatedWorld {}
fn no<T>() -> Result<T> {
    Err(Error::Emulator("not built".into()))
}
impl EmulatedWorld {
    pub fn new(_: usize, _: EmulatedOptions) -> Result<Self> {
        no()
    }
    pub fn size(&self) -> usize {
        0
    }
    pub fn ctas(&self) -> u32 {
        0
    }
    pub fn describe(&self) -> String {
        String::new()
    }
    pub fn allocate(&self, _: usize, _: u64) -> Result<GlobalAddr> {
        no()
    }
    pub fn write(&self, _: GlobalAddr, _: &[u8]) -> Result<()> {
        no()
    }
    pub fn read(&self, _: GlobalAddr, _: &mut [u8]) -> Result<()> {
        no()
    }
    pub fn launch<'a, K: Kernel>(&self, _: impl IntoIterator<Item = &'a RankLaunch<K::Args>>) -> Result<()>
    where
        K::Args: 'static,
    {
        no()
    }
    pub fn run(&self) -> Result<()> {
        no()
    }
    pub fn fault_record(&self, _: usize) -> GlobalAddr {
        GlobalAddr(0)
    }
    pub fn fault_records(&self) -> Result<Vec<FaultRecord>> {
        no()
    }
    pub fn clear_faults(&self) -> Result<()> {
        no()
    }
}
