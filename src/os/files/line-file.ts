import { constants } from 'node:fs'
import { AgentError } from '../../base/errors.ts'
import { failed } from '../errors.ts'
import { open } from './node-files.ts'

export interface LineFile {
  append(line: string): Promise<void>
  close(): Promise<void>
}

const FLAGS =
  constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK

/**
 * Empties or creates a file of mode 0600. Others may write to its folder: refuses a symbolic link, a file of another
 * owner or with a second name, and anything but a file.
 */
export async function openLineFile(path: string): Promise<LineFile> {
  const file = await open(path, FLAGS, 0o600).catch(failed('open', path))
  try {
    const status = await file.stat()
    if (!status.isFile() || status.nlink !== 1 || status.uid !== process.geteuid?.())
      throw new AgentError('INTERNAL', `${path}: not a file of the agent alone`)
    await file.chmod(0o600)
    await file.truncate(0)
  } catch (error) {
    await file.close()
    throw error
  }
  return {
    append: async (line) => void (await file.write(line)),
    close: () => file.close(),
  }
}
