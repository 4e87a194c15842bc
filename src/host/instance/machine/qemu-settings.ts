import { readFile } from 'node:fs/promises'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { throttleCommand } from '../../qemu/machine/disk-limits.ts'
import { pathOf } from '../../spec/component-path.ts'
import type { Machine } from './machine.ts'

/** What QEMU is told once it has begun, before the guest runs. The words are those of the step. */
type Setting = (
  context: { readonly ending: () => AbortSignal; readonly machine: Machine | undefined },
  words: readonly string[],
) => Promise<void>

/** Gives a disk its limits. */
export const throttleDisk: Setting = async (
  { ending, machine },
  [backend = '', device = '', iops, bytesPerSecond],
) => {
  const limits = { iops: Number(iops), bytesPerSecond: Number(bytesPerSecond) }
  await machine?.qmp.command(throttleCommand({ backend, device, ...limits }), ending())
}

/** Has the guest give back all memory but so many bytes, as soon as it can. */
export const inflateBalloon: Setting = async ({ ending, machine }, [, bytes]) => {
  await machine?.qmp.execute('balloon', { value: Number(bytes) }, ending())
}

/** VNC compares no more (RFC 6143, 7.2.2); spice has so much room (SPICE_MAX_PASSWORD_LENGTH). */
const MOST_BYTES = { vnc: 8, spice: 60 } as const

/** Gives a screen its password, which lets nobody in before. */
export const setPassword: Setting = async (
  { ending, machine },
  [backend = '', kind, time = '', file = ''],
) => {
  const protocol = kind === 'vnc' ? 'vnc' : 'spice'
  const password = await readPassword(file, MOST_BYTES[protocol]).catch((error) => {
    const reason = error instanceof AgentError ? error.message : errnoOf(error)
    throw new AgentError('FAILED_PRECONDITION', `${pathOf('backends', backend, 'password')}: ${reason}`)
  })
  // Its end first: a password that has ended is good for no moment.
  await machine?.qmp.execute('expire_password', { protocol, time }, ending())
  await machine?.qmp.execute('set_password', { protocol, password }, ending())
}

/** The errors do not have the value. */
async function readPassword(file: string, mostBytes: number): Promise<string> {
  const value = await readFile(file)
  const text = value.toString()
  if (value.length > mostBytes)
    throw new AgentError('FAILED_PRECONDITION', `the secret is too long, want at most ${mostBytes} bytes`)
  if (!Buffer.from(text).equals(value) || /\p{Cc}/u.test(text))
    throw new AgentError('FAILED_PRECONDITION', 'the secret is no text, want one without an end of line')
  return text
}
