import { describe, expect, it } from 'vitest'
import { linuxBlockDevices } from '../../../src/os/devices/block-devices.ts'
import { DM_COMMAND, deviceMapperRequest } from '../../../src/os/devices/device-mapper-message.ts'
import type { Native } from '../../../src/os/native.ts'

const TARGET = { type: 'verity', sectors: 8n, parameters: '1 /dev/vda' }
const [ENODEV, EINVAL] = [19, 22]

describe('map of linuxBlockDevices', () => {
  it('reports the first error even when the removal fails too', async () => {
    const { asked, open, map } = deviceMapper({ load: -EINVAL, remove: -ENODEV })
    await expect(map('layers-1', TARGET)).rejects.toThrow('device mapper: load layers-1: EINVAL')
    expect(asked).toEqual(['create', 'load', 'remove'])
    expect(open.size).toBe(0)
  })
})

type Command = keyof typeof DM_COMMAND
const COMMANDS: readonly Command[] = ['create', 'remove', 'resume', 'load']

/** A device mapper with these answers, else 0, and the commands that it received. */
function deviceMapper(answers: Partial<Record<Command, number>>) {
  const asked: Command[] = []
  const open = new Set<number>()
  const native: Pick<Native, 'openAt2' | 'ioctl' | 'close'> = {
    openAt2: () => {
      open.add(7)
      return 7
    },
    ioctl: async (_fd, request) => {
      const command = COMMANDS.find((each) => deviceMapperRequest(DM_COMMAND[each]) === request)
      if (command === undefined) throw new Error(`request ${request}`)
      asked.push(command)
      return answers[command] ?? 0
    },
    close: (fd) => (open.delete(fd) ? 0 : -9),
  }
  return { asked, open, map: linuxBlockDevices(native).map }
}
