import { AgentError } from '../../../base/errors.ts'
import type { MigrationInfo } from '../../qemu/qmp/commands.ts'
import type { BulkQemu } from './bulk.ts'

/** QEMU's states of a migration in which it can be cancelled. */
export const IN_PROGRESS: readonly string[] = ['setup', 'active', 'pre-switchover', 'device', 'cancelling']

/** The next event of a migration that has one of the states. To be called before the command that leads to it. */
export async function nextState(
  { qmp }: Pick<BulkQemu, 'qmp'>,
  states: readonly string[],
  signal: AbortSignal,
): Promise<string> {
  const { data } = await qmp.event(
    ({ name, data: { status } }) => name === 'MIGRATION' && states.includes(String(status)),
    signal,
  )
  return String(data.status)
}

/** The error of a migration that QEMU has given up. */
export function migrationError(info: MigrationInfo): AgentError {
  return new AgentError('FAILED_PRECONDITION', `memory: QEMU: ${info['error-desc'] ?? info.status}`)
}
