//! The 64-bit shared-memory matrix descriptor of wgmma (PTX ISA, "Matrix Descriptor").
//!
//! | bits | field | here |
//! | --- | --- | --- |
//! | 0–13 | start address / 16 | |
//! | 16–29 | leading byte offset / 16 | K-major: 1, not used for tiles as wide as the swizzle; M- or N-major: from one box of 64 columns to the next |
//! | 32–45 | stride byte offset / 16 | 64: 8 rows of 128 bytes |
//! | 62–63 | swizzle | 1: 128 bytes |

const STRIDE_BYTE_OFFSET: u64 = 1024 / 16;
const SWIZZLE_128_BYTES: u64 = 1;

/// Descriptor of a K-major tile, 128 bytes wide and swizzled by 128 bytes, at shared-memory address `addr` (in the shared
/// window, a multiple of 16). A step of 16 elements along K adds 32 bytes to `addr`.
#[inline(always)]
pub const fn k_major_128(addr: u32) -> u64 {
    descriptor(addr, 16)
}

/// Descriptor of an M- or N-major tile: boxes of 64 elements (128 bytes, swizzled) by rows along K, `box_bytes` apart. A step
/// of 16 elements along K adds 2048 bytes to `addr`.
#[inline(always)]
pub const fn mn_major_128(addr: u32, box_bytes: u32) -> u64 {
    descriptor(addr, box_bytes)
}

#[inline(always)]
const fn descriptor(addr: u32, leading_bytes: u32) -> u64 {
    ((addr & 0x3_FFFF) >> 4) as u64
        | ((leading_bytes >> 4) as u64) << 16
        | STRIDE_BYTE_OFFSET << 32
        | SWIZZLE_128_BYTES << 62
}

/// The descriptor of the same tile `bytes` further on, within shared memory. Only the low half changes: one addition, where
/// making the descriptor anew takes four instructions.
#[inline(always)]
pub const fn advanced(descriptor: u64, bytes: u32) -> u64 {
    descriptor >> 32 << 32 | (descriptor as u32 + (bytes >> 4)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_come_back_out_of_the_descriptor() {
        for addr in [0u32, 1024, 1024 + 96, 227 * 1024] {
            let d = k_major_128(addr);
            assert_eq!((d & 0x3FFF) as u32 * 16, addr & 0x3_FFFF);
            assert_eq!(d >> 16 & 0x3FFF, 1);
            assert_eq!((d >> 32 & 0x3FFF) * 16, 1024);
            assert_eq!(d >> 62, 1);
            assert_eq!((mn_major_128(addr, 8192) >> 16 & 0x3FFF) * 16, 8192);
        }
    }

    #[test]
    fn a_descriptor_advances_as_its_address_does() {
        for addr in [0u32, 1024, 226 * 1024] {
            for bytes in [0, 32, 64, 96] {
                assert_eq!(advanced(k_major_128(addr), bytes), k_major_128(addr + bytes));
            }
            for bytes in [0, 2048, 4096, 6144] {
                assert_eq!(
                    advanced(mn_major_128(addr & !8191, 8192), bytes),
                    mn_major_128((addr & !8191) + bytes, 8192)
                );
            }
        }
    }
}
