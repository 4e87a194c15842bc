/** The shims of Kata Containers: the Go shim and runtime-rs. */
export type KataRuntime = 'go' | 'rs'

const NAMES: Readonly<Record<KataRuntime, string>> = { go: "Kata's Go shim", rs: 'runtime-rs' }

/** How each shim is told to show `image` as the disk /dev/vda1; without it, stock settings decide. */
const AS_DISK: Readonly<Record<KataRuntime, string>> = {
  go: 'disable_image_nvdimm = true',
  rs: 'vm_rootfs_driver = "virtio-blk-pci"',
}

/**
 * The settings of Kata's configuration.toml that boot the guest from the files in `installPath`. The text is complete
 * TOML: a drop-in file for `config.d` beside Kata's own configuration.toml, whose other settings stay (docs/kata.md).
 */
export function kataConfiguration(runtime: KataRuntime, installPath: string): string {
  const file = (name: string) => tomlString(`${installPath}/${name}`)
  return `# What to change for ${NAMES[runtime]} 4.1.0. Put this file into config.d beside configuration.toml, under a
# name that ends in .toml, or change the same keys in configuration.toml itself.

[hypervisor.qemu]
kernel = ${file('vmlinuz')}
initrd = ${file('initrd.img')}
# Kata refuses image and initrd together, so the stock image has to go.
image = ""

# Or with a root disk, in place of the three lines above; "npm run image -- --kernel" makes the kernel:
# kernel = ${file('vmlinuz-built-in')}
# initrd = ""
# image = ${file('root.img')}
# rootfs_type = "erofs"
# ${AS_DISK[runtime]}
${runtime === 'rs' ? RUNTIME_RS_ONLY : ''}`
}

const RUNTIME_RS_ONLY = `
# A container with a memory limit needs room for more memory: 0 is all of this machine's.
memory_slots = 10
default_maxmemory = 0

[agent.kata]
# From the start of the guest until its agent has to answer, in ms; runtime-rs takes at least 10 s. A boot without KVM
# takes longer.
reconnect_timeout_ms = 45000
`

/** Escapes of JSON are escapes of TOML's basic strings. */
function tomlString(text: string): string {
  return JSON.stringify(text)
}
