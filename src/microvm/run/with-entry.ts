import { messageOf } from '../../base/errors.ts'
import { type Address, addressText } from '../../client/connection/address.ts'
import { machinesFolder, type RegistryEnvironment } from '../../client/machines/entry.ts'
import { type Registration, registerMachine } from '../../client/machines/register.ts'
import type { Reporter } from './reporter.ts'

/** Tells agent-ctl where the agent of a run listens, once that has answered. */
export type Publish = (address: Address) => void

/** What an entry is made of. */
interface EntryOptions {
  /** `--name`; without it the machine gets a free one. */
  readonly name: string | undefined
  readonly environment: RegistryEnvironment
  readonly reporter: Pick<Reporter, 'progress' | 'detail'>
}

/**
 * Calls `use` while the machine has an entry, by which agent-ctl finds it. The entry is removed afterwards, also when the
 * process exits before. Without a name, a run whose entry cannot be made says so and goes on. Throws ALREADY_EXISTS when the
 * name is in use.
 */
export async function withEntry<T>(options: EntryOptions, use: (publish: Publish) => Promise<T>): Promise<T> {
  const { reporter } = options
  const registration = registered(options)
  const remove = () => registration?.remove()
  process.once('exit', remove)
  try {
    return await use((address) => {
      showAddress(reporter, address, registration?.name)
      if (registration === undefined) return
      try {
        registration.publish(address)
      } catch (error) {
        reporter.progress(notFound(error))
      }
    })
  } finally {
    process.off('exit', remove)
    remove()
  }
}

export function showAddress(reporter: Pick<Reporter, 'detail'>, address: Address, name?: string): void {
  reporter.detail(`the agent answers at ${addressText(address)}`)
  const target = address.kind === 'instance' ? address.key : name
  if (target !== undefined) reporter.detail(`to look into the guest: ./agent-ctl -a microvm://${target} ps`)
}

function registered({ environment, name, reporter }: EntryOptions): Registration | undefined {
  try {
    return registerMachine(machinesFolder(environment), name)
  } catch (error) {
    if (name !== undefined) throw error
    reporter.progress(notFound(error))
    return undefined
  }
}

function notFound(error: unknown): string {
  return `${messageOf(error)}; agent-ctl will not find this machine by itself`
}
