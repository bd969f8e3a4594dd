//! The 64-bit shared-memory matrix descriptor of wgmma (PTX ISA, "Matrix Descriptor").
//!
//! | bits | field | here |
//! | --- | --- | --- |
//! | 0–13 | start address / 16 | |
//! | 16–29 | leading byte offset / 16 | 1: not used for K-major tiles as wide as the swizzle |
//! | 32–45 | stride byte offset / 16 | 64: 8 rows of 128 bytes |
//! | 62–63 | swizzle | 1: 128 bytes |

const LEADING_BYTE_OFFSET: u64 = 1;
const STRIDE_BYTE_OFFSET: u64 = 1024 / 16;
const SWIZZLE_128_BYTES: u64 = 1;

/// Descriptor of a K-major tile, 128 bytes wide and swizzled by 128 bytes, at shared-memory address `addr` (in the shared
/// window, a multiple of 16). Steps of 32 bytes along K are added to `addr`.
#[inline(always)]
pub const fn k_major_128(addr: u32) -> u64 {
    ((addr & 0x3_FFFF) >> 4) as u64 | LEADING_BYTE_OFFSET << 16 | STRIDE_BYTE_OFFSET << 32 | SWIZZLE_128_BYTES << 62
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
        }
    }
}
