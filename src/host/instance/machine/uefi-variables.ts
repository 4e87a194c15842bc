import { copyFile, open, rename, stat } from 'node:fs/promises'
import { AgentError, errnoOf } from '../../../base/errors.ts'
import { OVMF } from '../../qemu/qemu-arguments.ts'

/** The name of the file, in the folder of what keeps it. */
export const VARIABLES = 'uefi-variables.fd'

/** Makes the file unless it is there, whole or not at all. Throws FAILED_PRECONDITION without OVMF. */
export async function makeVariables(path: string, from: string = OVMF.variables): Promise<void> {
  if (await stat(path).catch(() => undefined)) return
  const made = `${path}.new`
  await copyFile(from, made).catch((error) => {
    if (errnoOf(error) !== 'ENOENT') throw error
    const text = `${from}: no such file; ./microvm doctor names its package`
    throw new AgentError('FAILED_PRECONDITION', `board.firmware: ${text}`, { cause: error })
  })
  await using file = await open(made, 'r+')
  await file.chmod(0o600)
  await file.sync()
  await rename(made, path)
}
