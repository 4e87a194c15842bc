import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'

/** The command lines and environments of all processes that work on or in the folder, and have `text` in their command line. */
export function commandLines(folder: string, text = ''): readonly string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && name !== `${process.pid}`)
    .flatMap((pid) => {
      try {
        const [words, environment] = ['cmdline', 'environ'].map((name) =>
          readFileSync(`/proc/${pid}/${name}`, 'latin1'),
        )
        // Those of an instance are in its folder.
        const isOwn =
          words?.includes(folder) || `${readlinkSync(`/proc/${pid}/cwd`)}/`.startsWith(`${folder}/`)
        return isOwn && words?.includes(text) ? [`${words} ${environment}`] : []
      } catch {
        // The process has ended meanwhile.
        return []
      }
    })
}

export function filesWith(folder: string, text: string): readonly string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .flatMap((entry) => {
      const path = join(entry.parentPath, entry.name)
      return entry.isFile() && readFileSync(path).includes(text) ? [path] : []
    })
    .sort()
}
