import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { withTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { ensureImage } from '../../src/image/ensure-image.ts'
import { bootGuest, openOwnPlace } from '../../src/microvm/run/boot-guest.ts'
import type { GuestParts } from '../../src/microvm/run/guest-spec.ts'
import type { RunMachine } from '../../src/microvm/run/run-machine.ts'
import { progress } from '../../test/support/vm/boot-guest.ts'
import { median, report } from '../support/figure.ts'

/** The time from power-on to the first RPC, against the same kernel and vminit with a static busybox as the agent. */
const ROUNDS = 5
const REACHED = 'bench: reached'

const image = await ensureImage({ form: 'disk', progress })

await withTemporaryFolder(tmpdir(), async (folder) => {
  const bareRoot = { path: makeBareRoot(folder), type: 'ext4' }
  const agent: AgentBoot[] = []
  const bare: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    bare.push(await bareBootMs(bareRoot))
    agent.push(await bootAgent())
  }
  const medianOf = (phase: keyof AgentBoot) => Math.round(median(agent.map((boot) => boot[phase])))
  const phases = { qemu: medianOf('qemuMs'), listening: medianOf('listeningMs'), rpc: medianOf('rpcMs') }
  const figure = { value: median(agent.map((boot) => boot.totalMs)), floor: median(bare), limit: 2.5, phases }
  report({ figure: 'power-on to first RPC', unit: 'ms', ...figure })
})

function partsOf(root: GuestParts['boot']['root']): Omit<GuestParts, 'link'> {
  const boot = { kernel: image.kernel, vmlinux: image.vmlinux, initrd: image.initrd, root }
  return { machine: 'q35', memoryMib: 512, cpus: 2, boot, containerRoot: undefined, append: [] }
}

interface AgentBoot {
  readonly qemuMs: number
  readonly listeningMs: number
  readonly rpcMs: number
  readonly totalMs: number
}

async function bootAgent(): Promise<AgentBoot> {
  return withTemporaryFolder(tmpdir(), async (folder) => {
    const begin = performance.now()
    let [qemu, listening] = [begin, begin]
    const started = (vm: RunMachine) => {
      qemu = performance.now()
      vm.console.onLine((line) => {
        if (line.includes('"listening"')) listening = performance.now()
      })
    }
    const signal = AbortSignal.timeout(120_000)
    const parts = partsOf(image.root)
    const place = await openOwnPlace({ folder, environment: process.env, progress, signal })
    const guest = await bootGuest({ parts, place, started, progress, signal })
    const end = performance.now()
    await guest.close()
    const phases = { qemuMs: qemu - begin, listeningMs: listening - qemu, rpcMs: end - listening }
    return { ...phases, totalMs: end - begin }
  })
}

async function bareBootMs(root: NonNullable<GuestParts['boot']['root']>): Promise<number> {
  return withTemporaryFolder(tmpdir(), async (folder) => {
    const begin = performance.now()
    let elapsed = 0
    const reached = new AbortController()
    const started = (vm: RunMachine) => {
      vm.console.onLine((line) => {
        if (!line.includes(REACHED) || elapsed > 0) return
        elapsed = performance.now() - begin
        reached.abort(new Error(REACHED))
      })
    }
    const signal = AbortSignal.any([reached.signal, AbortSignal.timeout(120_000)])
    const place = await openOwnPlace({ folder, environment: process.env, progress, signal })
    // No agent answers; the line ends the boot.
    await bootGuest({ parts: partsOf(root), place, started, progress, signal }).catch((error: unknown) => {
      if (!reached.signal.aborted) throw error
    })
    return elapsed
  })
}

function makeBareRoot(folder: string): string {
  const tree = join(folder, 'bare')
  for (const name of ['bin', 'dev', 'proc', 'sys', 'usr/lib/microvm-agent']) {
    mkdirSync(join(tree, name), { recursive: true })
  }
  copyFileSync('/bin/busybox', join(tree, 'bin/busybox'))
  const script = `#!/bin/busybox sh\necho '${REACHED}'\nexec /bin/busybox sleep 1000\n`
  writeFileSync(join(tree, 'usr/lib/microvm-agent/node'), script, { mode: 0o755 })
  const path = join(folder, 'bare.ext4')
  writeFileSync(path, '')
  truncateSync(path, 16 * 2 ** 20)
  execFileSync('mke2fs', ['-q', '-t', 'ext4', '-d', tree, path])
  return path
}
