/** The shims of Kata Containers: the Go shim and runtime-rs. */
export type KataRuntime = 'go' | 'rs'

const NAMES: Readonly<Record<KataRuntime, string>> = { go: "Kata's Go shim", rs: 'runtime-rs' }

/**
 * The settings of Kata's configuration.toml that boot the guest from the files in `installPath`. The text is complete
 * TOML: a drop-in file for `config.d` beside Kata's own configuration.toml, whose other settings stay (docs/kata.md).
 */
export function kataConfiguration(runtime: KataRuntime, installPath: string): string {
  return `# What to change for ${NAMES[runtime]} 4.1.0. Put this file into config.d beside configuration.toml, under a
# name that ends in .toml, or change the same keys in configuration.toml itself.

[hypervisor.qemu]
kernel = ${tomlString(`${installPath}/vmlinuz`)}
initrd = ${tomlString(`${installPath}/initrd.img`)}
# Kata refuses image and initrd together, so the stock image has to go.
image = ""
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
