import type { Os } from '../../os/os.ts'

/** The parent's pid; undefined for a process that is gone. `self` is this process. */
export async function parentOf(os: Os, pid: string): Promise<string | undefined> {
  const text = await textOf(os, `/proc/${pid}/stat`)
  // The second field is a name in parentheses, which may hold anything (man 5 proc).
  return text.slice(text.lastIndexOf(')') + 2).split(' ')[1]
}

/** The text of a file below /proc; empty when the process is gone. */
export async function textOf(os: Os, path: string): Promise<string> {
  return os.files.readText(path).catch(() => '')
}
