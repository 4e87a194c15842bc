import { AgentError } from '../../base/errors.ts'
import type { Files, ScratchFiles } from '../../os/files/files.ts'

/** The policy of an image, at the same path as in Kata's images. */
const DEFAULT_FILE = '/etc/kata-opa/default-policy.rego'
const MAX_BYTES = 16 * 1024 * 1024

/** The policy of the setting, or else the image's own. Throws FAILED_PRECONDITION for a missing or unusable file. */
export async function readPolicyFile(
  {
    files,
    scratch,
  }: { readonly files: Pick<Files, 'readBytes'>; readonly scratch: Pick<ScratchFiles, 'stat'> },
  setting: string,
): Promise<{ readonly path: string; readonly text: string } | undefined> {
  const path = setting === '' ? DEFAULT_FILE : setting
  const status = await scratch.stat(path)
  if (status === undefined && setting === '') return undefined
  if (status === undefined) throw unusable(path, 'does not exist')
  if (status.kind !== 'file') throw unusable(path, 'not a file')
  if (status.sizeBytes > MAX_BYTES)
    throw unusable(path, `${status.sizeBytes} bytes, want at most ${MAX_BYTES}`)
  const bytes = await files.readBytes(path, MAX_BYTES)
  try {
    return { path, text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) }
  } catch (error) {
    throw unusable(path, 'not UTF-8', error)
  }
}

function unusable(path: string, what: string, cause?: unknown): AgentError {
  return new AgentError('FAILED_PRECONDITION', `policy file ${path}: ${what}`, { cause })
}
