import { readFile } from 'node:fs/promises'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { pathOf } from '../../spec/component-path.ts'

/** What opens the disk of the backend `key`, in base64, for a QEMU that runs. Rejects with FAILED_PRECONDITION by the field. */
export async function secretValue(key: string, uuid: string, file = ''): Promise<string> {
  return await readFile(file, 'base64').catch((error) => {
    const at = pathOf('backends', key, 'file', 'encryption', 'secret')
    const text =
      errnoOf(error) === 'ENOENT' ? 'not found, want it set before (./microvm secret)' : errnoOf(error)
    throw new AgentError('FAILED_PRECONDITION', `${at}: secret ${uuid}: ${text}`)
  })
}
