import { errnoOf } from '../base/errors.ts'
import type { Files } from '../os/files/files.ts'

/** A short file of sysfs without its line break, or undefined: devices come and go while they are looked at. */
export async function readIfThere(files: Pick<Files, 'readText'>, path: string): Promise<string | undefined> {
  try {
    return (await files.readText(path)).trim()
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENODEV') return undefined
    throw error
  }
}
