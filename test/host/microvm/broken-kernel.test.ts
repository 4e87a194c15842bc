import { tmpdir } from 'node:os'
import { describe, expect, it } from 'vitest'
import { withTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { type BootOptions, bootGuest, openOwnPlace } from '../../../src/microvm/run/boot-guest.ts'
import { runFailure } from '../../../src/microvm/run/guest-failure.ts'
import type { RunMachine } from '../../../src/microvm/run/run-machine.ts'
import { tinyGuest } from '../../support/wing/tiny-guest.ts'

describe('bootGuest', () => {
  it('boots once more when the emulation broke the kernel, and then tells of its panic', async () => {
    await withTemporaryFolder(tmpdir(), async (folder) => {
      const told: string[] = []
      const machines: RunMachine[] = []
      const environment = { ...process.env, MICROVM_VSOCK: 'tcp' }
      const signal = AbortSignal.timeout(60_000)
      const place = await openOwnPlace({ folder, environment, progress: () => {}, signal })
      const kernel = tinyGuest(folder, 'panicTextThenOff')
      const parts: BootOptions['parts'] = {
        ...{ machine: 'q35', memoryMib: 64, cpus: 1, containerRoot: undefined, append: [] },
        boot: { kernel, initrd: undefined, root: undefined },
      }
      const started = (vm: RunMachine) => void machines.push(vm)
      const progress = (line: string) => void told.push(line)
      const error = await bootGuest({ parts, place, started, progress, signal }).catch((failure) => failure)
      expect(machines).toHaveLength(2)
      expect(told).toEqual([expect.stringContaining('booting once more')])
      const lines = machines[1]?.console.lines ?? []
      expect(runFailure(error, lines, 64)).toMatchObject({
        message: "the guest's kernel panicked: Attempted to kill init!",
      })
    })
  })
})
