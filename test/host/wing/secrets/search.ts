import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The command lines and environments of all processes that work on the folder. */
export function commandLines(folder: string): readonly string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && name !== `${process.pid}`)
    .flatMap((pid) => {
      try {
        const [words, environment] = ['cmdline', 'environ'].map((name) =>
          readFileSync(`/proc/${pid}/${name}`, 'latin1'),
        )
        const isOwn = words?.includes(folder)
        return isOwn ? [`${words} ${environment}`] : []
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
