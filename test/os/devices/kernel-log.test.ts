import { describe, expect, it } from 'vitest'
import { type KernelLine, linuxKernelLog, parseRecord } from '../../../src/os/devices/kernel-log.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { realNative } from '../../support/os/real-native.ts'

const FORKED = 'random: crng reseeded due to virtual machine fork'

describe('parseRecord', () => {
  it('reads what the kernel says', () => {
    expect(parseRecord(`5,1186,123456789,-;${FORKED}\n`)).toEqual({
      ...{ sequence: 1186n, timeUs: 123_456_789n, text: FORKED },
    })
    expect(parseRecord(`6,7,1,-,caller=T1;one\n SUBSYSTEM=pci\n`)).toEqual({
      ...{ sequence: 7n, timeUs: 1n, text: 'one' },
    })
  })

  it.each([
    ['by a program', `12,1187,123456790,-;${FORKED}`],
    ['by a daemon', `30,1187,123456790,-;${FORKED}`],
    ['without a header', FORKED],
    ['with a header of letters', `a,b,c,-;${FORKED}`],
  ])('skips a record %s', (_name, record) => {
    expect(parseRecord(record)).toBeUndefined()
  })
})

describe('linuxKernelLog', () => {
  const follow = async (records: readonly (Buffer | number)[]) => {
    const native = await realNative()
    const { log, lines } = recordingLog()
    const left = [...records]
    const streams = {
      ...linuxStreams(native),
      readable: async () => new Promise<void>(() => {}),
      tryRead: () => {
        const next = left.shift()
        if (typeof next === 'number') throw kernelError('read', 'fd 99', 'EPIPE')
        return next
      },
    }
    const told: KernelLine[] = []
    linuxKernelLog({ native: { openKernelLog: () => 99 }, streams, log }).follow(true, (line) =>
      told.push(line),
    )
    await expect.poll(() => left.length).toBe(0)
    return { told, lines }
  }

  it('goes on after records that were overwritten', async () => {
    const records = [Buffer.from('6,1,1,-;one\n'), 32, Buffer.from('6,9,1,-;nine\n')]
    expect((await follow(records)).told.map(({ text }) => text)).toEqual(['one', 'nine'])
  })

  it('gives way to other work in a flood', async () => {
    const records = Array.from({ length: 1000 }, (_, index) => Buffer.from(`6,${index},1,-;line\n`))
    let turns = 0
    const count = setInterval(() => {
      turns += 1
    }, 0)
    expect((await follow(records)).told).toHaveLength(1000)
    clearInterval(count)
    expect(turns).toBeGreaterThan(0)
  })

  it('is not followed where it cannot be opened', async () => {
    const { log, lines } = recordingLog()
    linuxKernelLog({
      native: { openKernelLog: () => -1 },
      streams: linuxStreams(await realNative()),
      log,
    }).follow(false, () => {})
    await expect.poll(() => lines).toMatchObject([{ message: "the kernel's log is not followed" }])
  })
})
