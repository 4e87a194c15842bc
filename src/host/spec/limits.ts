/** Devices and backends together. */
export const MAX_COMPONENTS = 1024

/** The encoded specification. */
export const MAX_SPECIFICATION_BYTES = 1 << 20

/** PATH_MAX without the NUL byte. */
export const MAX_PATH_BYTES = 4095

/** `sun_path` without the NUL byte (man 7 unix). */
export const MAX_SOCKET_PATH_BYTES = 107

/** Linux reads 2,048 bytes on x86, and QEMU's arguments for an emulated guest add up to 120. */
export const MAX_COMMAND_LINE_BYTES = 1920

/** 16 TiB, memory of all kinds together. */
export const MAX_MEMORY_MIB = 1 << 24

/** More would need x2APIC, which QEMU 7.2 does not emulate. */
export const MAX_CPUS = 255

/** ACPI_MAX_RAM_SLOTS of QEMU. */
export const MAX_MEMORY_SLOTS = 256

export const MAX_REBOOTS = 1000
export const MAX_REBOOT_SECONDS = 86_400

/** The kernel's least share is 1 ms of a period of 100 ms. */
export const MIN_CPU_MILLI = 10
export const MAX_CPU_MILLI = 1_000_000

/** The holder, and QEMU with its threads. */
export const MIN_TASKS = 16
/** PID_MAX_LIMIT of Linux. */
export const MAX_TASKS = 4_194_304

/** Of a network card. */
export const MAX_ADDRESSES = 64

/** FW_CFG_MAX_FILE_PATH of QEMU without the NUL byte. */
export const MAX_FIRMWARE_NAME_BYTES = 55

/** The places for virtio devices of machine `microvm` in QEMU 7.2. */
export const MAX_MMIO_DEVICES = 24
