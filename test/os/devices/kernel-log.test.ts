import { constants } from 'node:os'
import { describe, expect, it } from 'vitest'
import { type KernelLine, linuxKernelLog, parseRecord } from '../../../src/os/devices/kernel-log.ts'
import { unwrap } from '../../../src/os/errors.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { realNative } from '../../support/os/real-native.ts'

const { EAGAIN } = constants.errno
const FORKED = 'random: crng reseeded due to virtual machine fork'

describe('parseRecord', () => {
  it('reads what the kernel says', () => {
    expect(parseRecord(`5,1186,123456789,-;${FORKED}\n`)).toEqual({
      ...{ sequence: 1186n, text: FORKED },
    })
    expect(parseRecord(`6,7,1,-,caller=T1;one\n SUBSYSTEM=pci\n`)).toEqual({
      ...{ sequence: 7n, text: 'one' },
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
  const follow = async (results: readonly (Buffer | number)[]) => {
    const { log, lines } = recordingLog()
    const left = [...results]
    let asked = false
    const native = { openKernelLog: () => 99, readKernelLog: () => left.shift() ?? -EAGAIN }
    const streams = {
      readable: async () => {
        asked = true
        await new Promise<void>(() => {})
      },
    }
    const told: KernelLine[] = []
    linuxKernelLog({ native, streams, log }).follow(0n, (line) => told.push(line))
    await expect.poll(() => asked || lines.length > 0).toBe(true)
    return { told, lines }
  }

  it('goes on where many records were skipped', async () => {
    expect((await follow([0, 0, Buffer.from('6,9,1,-;nine\n')])).told.map(({ text }) => text)).toEqual([
      'nine',
    ])
  })

  it('ends when the log cannot be read', async () => {
    expect((await follow([-5])).lines).toMatchObject([{ message: "the kernel's log is not followed" }])
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
    const native = { openKernelLog: () => -1, readKernelLog: () => -EAGAIN }
    const streams = { readable: async () => {} }
    linuxKernelLog({ native, streams, log }).follow(undefined, () => {})
    await expect.poll(() => lines).toMatchObject([{ message: "the kernel's log is not followed" }])
  })
})

describe('readKernelLog', () => {
  it('reads the records since a time, also one from before it that comes later', async () => {
    const native = await realNative()
    // One read(2) takes one message, as from /dev/kmsg.
    const [log, kernel] = unwrap('open', 'a pair', native.messagePair())
    const records = [
      '6,1,100,-;old\n',
      '6,2,199,-;old\n',
      '6,3,200,-;new\n',
      '6,4,199,-;late\n',
      '6,5,201,-;last\n',
    ]
    for (const record of records) native.sendMessage(kernel, Buffer.from(record))
    expect(String(native.readKernelLog(log, 200))).toBe(records[2])
    expect(String(native.readKernelLog(log, 200))).toBe(records[4])
    native.close(kernel)
    expect(native.readKernelLog(log, 200)).toBe(-EAGAIN)
    native.close(log)
  })
})
