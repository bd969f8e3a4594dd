//! What a GPU must be for the kernels to run on it.

use std::ffi::CStr;
use std::fmt;

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute};

use super::library;
use super::status::check as call;
use crate::error::{Error, Result};
use crate::kernels::config::MAX_SMEM_BYTES;

/// Oldest driver, by CUDA version: 12.0 is the first that takes PTX ISA 8.0.
pub(crate) const MIN_DRIVER: u32 = 12_000;
/// What every "no usable GPU" asks for.
pub(crate) const NEEDED: &str =
    "a Hopper GPU (compute capability 9.0: H100, H200, GH200) and a driver for CUDA 12.0 or newer (525.60 or newer)";

/// A GPU's identity, the same in every process whatever `CUDA_VISIBLE_DEVICES` says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What the driver says about a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Ordinal in this process.
    pub ordinal: usize,
    /// The product's name.
    pub name: String,
    /// Identity that holds across processes.
    pub uuid: Uuid,
    /// PCI domain, bus and device.
    pub pci: (u32, u32, u32),
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// CUDA version of the driver, 1000 · major + 10 · minor.
    pub driver_version: u32,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Shared memory a CTA may opt in to, in bytes.
    pub smem_per_block_optin: u32,
    /// Device memory, in bytes.
    pub memory_bytes: u64,
    /// L2 cache, in bytes.
    pub l2_bytes: u32,
    /// Whether host and device share one address space.
    pub unified_addressing: bool,
    /// Whether host memory can be mapped for the GPU.
    pub host_mapping: bool,
    /// Whether memory can be reserved and mapped by hand (cuMemMap).
    pub virtual_memory: bool,
    /// Whether CTAs can be launched in clusters.
    pub clusters: bool,
}

impl DeviceFacts {
    /// Asks the driver about the GPU with this ordinal. No context is made, and any GPU is accepted.
    ///
    /// # Errors
    /// [`Error::NoGpu`] without a driver; [`Error::Argument`] for an ordinal that does not exist; [`Error::Driver`].
    pub fn query(ordinal: usize) -> Result<Self> {
        let driver_version = library::driver_version()?;
        let count = device_count()?;
        if ordinal >= count {
            return Err(Error::argument("GPU ordinal", ordinal, format!("this process sees {count} GPUs, from 0")));
        }
        let mut device: CUdevice = 0;
        // SAFETY: the library is open and `device` is a live integer; the ordinal is below the count.
        call("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
        Self::of_device(ordinal, device, driver_version)
    }

    fn of_device(ordinal: usize, device: CUdevice, driver_version: u32) -> Result<Self> {
        use CUdevice_attribute as A;
        let attribute = |which| -> Result<u32> {
            let mut value = 0;
            // SAFETY: `value` is a live integer, `device` a valid device.
            call("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let mut name = [0; 256];
        // SAFETY: the driver writes at most 256 bytes, NUL included.
        call("cuDeviceGetName", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 256, device) })?;
        name[255] = 0;
        // SAFETY: the last byte is NUL.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: `uuid` is a live struct of 16 bytes.
        call("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) })?;
        let mut memory_bytes = 0;
        // SAFETY: `memory_bytes` is a live usize.
        call("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut memory_bytes, device) })?;
        Ok(Self {
            ordinal,
            name,
            uuid: Uuid(uuid.bytes.map(|b| b as u8)),
            pci: (
                attribute(A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
                attribute(A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
                attribute(A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
            ),
            compute_capability: (
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            driver_version,
            sm_count: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            smem_per_block_optin: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            memory_bytes: memory_bytes as u64,
            l2_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            unified_addressing: attribute(A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)? != 0,
            host_mapping: attribute(A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)? != 0,
            virtual_memory: attribute(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)? != 0,
            clusters: attribute(A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)? != 0,
        })
    }
}

/// GPUs that this process sees.
///
/// # Errors
/// [`Error::NoGpu`] without a driver; [`Error::Driver`].
pub fn device_count() -> Result<usize> {
    library::available()?;
    let mut count = 0;
    // SAFETY: the library is open and `count` is a live integer.
    call("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Whether the kernels can run on a GPU with these facts. Asks nothing of the machine.
///
/// # Errors
/// [`Error::NoGpu`] with what is there and what is needed.
pub fn check(facts: &DeviceFacts) -> Result<()> {
    let (major, minor) = facts.compute_capability;
    let refuse = |what: String, needed: String| {
        Err(Error::NoGpu { found: format!("GPU {} ({}) {what}", facts.ordinal, facts.name), needed })
    };
    if (major, minor) != (9, 0) {
        return refuse(
            format!("has compute capability {major}.{minor}"),
            format!("{NEEDED}; the kernels use sm_90a instructions, which older and newer GPUs lack alike"),
        );
    }
    if facts.driver_version < MIN_DRIVER {
        return refuse(format!("has a driver for CUDA {}", cuda_version(facts.driver_version)), NEEDED.to_string());
    }
    if facts.smem_per_block_optin < MAX_SMEM_BYTES {
        return refuse(
            format!("gives a CTA {} bytes of shared memory", facts.smem_per_block_optin),
            format!("{MAX_SMEM_BYTES} bytes"),
        );
    }
    if facts.sm_count == 0 {
        return refuse("has no SM".to_string(), "at least one SM".to_string());
    }
    for (there, what) in [
        (facts.unified_addressing, "unified addressing"),
        (facts.host_mapping, "mapped host memory"),
        (facts.clusters, "cluster launch"),
    ] {
        if !there {
            return refuse(format!("has no {what}"), what.to_string());
        }
    }
    Ok(())
}

/// `12040` as `12.4`.
pub(crate) fn cuda_version(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> DeviceFacts {
        DeviceFacts {
            ordinal: 0,
            name: "NVIDIA H200".to_string(),
            uuid: Uuid([0xAB; 16]),
            pci: (0, 3, 0),
            compute_capability: (9, 0),
            driver_version: 13_000,
            sm_count: 132,
            smem_per_block_optin: 232_448,
            memory_bytes: 143 << 30,
            l2_bytes: 60 << 20,
            unified_addressing: true,
            host_mapping: true,
            virtual_memory: true,
            clusters: true,
        }
    }

    fn refusal(facts: &DeviceFacts) -> String {
        check(facts).expect_err("these facts must be refused").to_string()
    }

    #[test]
    fn hopper_is_accepted() {
        check(&h200()).unwrap();
        check(&DeviceFacts { driver_version: 12_000, ..h200() }).unwrap();
        check(&DeviceFacts { sm_count: 114, virtual_memory: false, ..h200() }).unwrap();
    }

    #[test]
    fn other_architectures_are_refused_with_theirs_and_ours() {
        for (name, capability, text) in [
            ("NVIDIA A100-SXM4-80GB", (8, 0), "compute capability 8.0"),
            ("NVIDIA L40S", (8, 9), "compute capability 8.9"),
            ("NVIDIA B200", (10, 0), "compute capability 10.0"),
            ("NVIDIA GeForce RTX 5090", (12, 0), "compute capability 12.0"),
        ] {
            let message = refusal(&DeviceFacts { name: name.to_string(), compute_capability: capability, ..h200() });
            assert!(message.contains(name) && message.contains(text), "{message}");
            assert!(message.contains("needed: a Hopper GPU (compute capability 9.0"), "{message}");
        }
    }

    #[test]
    fn an_older_driver_is_refused_with_its_version_and_ours() {
        for (version, text) in [(11_080, "CUDA 11.8"), (11_040, "CUDA 11.4")] {
            let message = refusal(&DeviceFacts { driver_version: version, ..h200() });
            assert!(message.contains(text) && message.contains("CUDA 12.0 or newer"), "{message}");
        }
    }

    #[test]
    fn a_gpu_that_lacks_a_feature_is_refused_by_that_feature() {
        let message = refusal(&DeviceFacts { smem_per_block_optin: 166_912, ..h200() });
        assert!(message.contains("166912") && message.contains("232448"), "{message}");
        assert!(refusal(&DeviceFacts { unified_addressing: false, ..h200() }).contains("unified addressing"));
        assert!(refusal(&DeviceFacts { host_mapping: false, ..h200() }).contains("mapped host memory"));
        assert!(refusal(&DeviceFacts { clusters: false, ..h200() }).contains("cluster launch"));
        assert!(refusal(&DeviceFacts { sm_count: 0, ..h200() }).contains("no SM"));
    }

    #[test]
    fn a_uuid_reads_as_the_driver_prints_it() {
        let uuid = Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(uuid.to_string(), "GPU-00010203-0405-0607-0809-0a0b0c0d0eff");
    }
}
