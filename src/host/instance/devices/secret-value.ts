import { readFile } from 'node:fs/promises'
import { AgentError, errnoOf } from '../../../base/errors.ts'

/** A secret in base64, for a QEMU that runs. Rejects with FAILED_PRECONDITION by the field. */
export async function secretValue(field: string, uuid: string, file = ''): Promise<string> {
  return await readFile(file, 'base64').catch((error) => {
    const text =
      errnoOf(error) === 'ENOENT' ? 'not found, want it set before (./microvm secret)' : errnoOf(error)
    throw new AgentError('FAILED_PRECONDITION', `${field}: secret ${uuid}: ${text}`)
  })
}
