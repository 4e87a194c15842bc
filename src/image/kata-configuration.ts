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
export function kataConfiguration(
  runtime: KataRuntime,
  {
    installPath,
    debugShell = false,
  }: {
    readonly installPath: string
    /** Whether the guest has a shell: the debug console is turned on. */
    readonly debugShell?: boolean
  },
): string {
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
${runtime === 'rs' ? ROOM_FOR_MEMORY : ''}${agentTable(runtime, debugShell)}`
}

/** Empty when Kata's own settings are right. */
function agentTable(runtime: KataRuntime, debugShell: boolean): string {
  const settings = [...(runtime === 'rs' ? [TIME_TO_BOOT] : []), ...(debugShell ? [DEBUG_CONSOLE] : [])]
  return settings.length === 0 ? '' : `\n[agent.kata]\n${settings.join('')}`
}

const ROOM_FOR_MEMORY = `
# A container with a memory limit needs room for more memory: 0 is all of this machine's.
memory_slots = 10
default_maxmemory = 0
`

const TIME_TO_BOOT = `# From the start of the guest until its agent has to answer, in ms; runtime-rs takes at least 10 s. A boot without KVM
# takes longer.
reconnect_timeout_ms = 45000
`

const DEBUG_CONSOLE = `# A shell in the guest, as its root, for root of this machine: kata-runtime exec, kata-ctl exec.
debug_console_enabled = true
`

/** Escapes of JSON are escapes of TOML's basic strings. */
function tomlString(text: string): string {
  return JSON.stringify(text)
}
