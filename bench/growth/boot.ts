import { tmpdir } from 'node:os'
import { withTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { ensureImage } from '../../src/image/ensure-image.ts'
import { isFromUserSpace } from '../../src/microvm/console-tail.ts'
import { bootGuest } from '../../src/microvm/guest.ts'
import type { Vm } from '../../src/microvm/vm.ts'
import { progress } from '../../test/support/vm/boot-guest.ts'
import { median } from '../support/figure.ts'

const ROUNDS = 5

/** The phases of a guest's boot from disk, with the time of each. */
export async function boot() {
  const image = await ensureImage({ form: 'disk', progress })
  const boots: ReadonlyMap<string, number>[] = []
  for (let round = 0; round < ROUNDS; round += 1) boots.push(await phasesOf(image))
  const names = [...(boots[0]?.keys() ?? [])]
  return {
    title: 'Phases of a boot',
    text: 'From the start of QEMU with 512 MiB and one CPU, emulated where there is no KVM. Boot steps run beside the first call.',
    columns: ['phase', 'ms'],
    rows: names.map((name) => [name, median(boots.map((phases) => phases.get(name) ?? 0))] as const),
  }
}

function phasesOf(image: Awaited<ReturnType<typeof ensureImage>>): Promise<ReadonlyMap<string, number>> {
  return withTemporaryFolder(tmpdir(), async (folder) => {
    const phases = new Map<string, number>()
    let since = performance.now()
    const ends = (phase: string) => {
      if (phases.has(phase)) return
      const now = performance.now()
      phases.set(phase, now - since)
      since = now
    }
    const steps = new Map<string, number>()
    const started = (vm: Vm) => {
      ends('link and QEMU')
      vm.console.onLine((line) => {
        if (!isFromUserSpace(line)) return
        ends('kernel, stage one and `vminit`, until the first line of the agent')
        const { msg, step, ms } = fieldsOf(line)
        if (msg === 'listening') ends('until the agent listens')
        if (msg === 'boot step') steps.set(`boot step \`${step}\``, Number(ms))
      })
    }
    const parts = {
      machine: 'q35',
      memoryMib: 512,
      cpus: 1,
      boot: image,
      containerRoot: undefined,
      append: [],
    } as const
    const signal = AbortSignal.timeout(120_000)
    const guest = await bootGuest({ parts, folder, environment: process.env, progress, started, signal })
    ends('until the first call is answered')
    await guest.close()
    return new Map([...phases, ...steps])
  })
}

function fieldsOf(line: string): Readonly<Record<string, string>> {
  const text = line.slice(line.indexOf('{'))
  try {
    return JSON.parse(text)
  } catch {
    return {}
  }
}
