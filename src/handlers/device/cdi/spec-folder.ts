import { messageOf } from '../../../base/errors.ts'
import { type CdiSpec, parseCdiSpec } from '../../../oci/cdi/parse-spec.ts'
import type { Files } from '../../../os/files/files.ts'

export interface SpecFile {
  readonly path: string
  readonly spec: CdiSpec
}

export interface FolderContents {
  /** The readable files, in the order of their names. */
  readonly files: readonly SpecFile[]
  /** The errors of the other files, with their paths. */
  readonly problems: readonly string[]
}

/** Parsing YAML of this size takes about half a second, during which the event loop is blocked. */
const MAX_FILE_BYTES = 256 * 1024
const MAX_FILES = 64

/** Kept until the file changes. */
interface ParsedFile {
  readonly text: string
  readonly outcome: CdiSpec | { readonly problem: string }
}

/** Reads a folder of CDI specifications repeatedly. Only regular files are opened, so a fifo cannot block it. */
export class SpecFolder {
  readonly #files: Files
  readonly #folder: string
  readonly #parsed = new Map<string, ParsedFile>()

  constructor(files: Files, folder: string) {
    this.#files = files
    this.#folder = folder
  }

  /** Never rejects: errors are returned as problems. */
  async read(): Promise<FolderContents> {
    const files: SpecFile[] = []
    const problems: string[] = []
    for (const name of await this.#names(problems)) {
      const path = `${this.#folder}/${name}`
      const outcome = await this.#readFile(path)
      if ('problem' in outcome) problems.push(outcome.problem)
      else files.push({ path, spec: outcome })
    }
    return { files, problems }
  }

  async #names(problems: string[]): Promise<readonly string[]> {
    try {
      const names = (await this.#files.list(this.#folder))
        .filter((name) => /\.(json|yaml)$/.test(name))
        .sort()
      if (names.length > MAX_FILES)
        problems.push(`${this.#folder}: ${names.length} files, of which ${MAX_FILES} are read`)
      return names.slice(0, MAX_FILES)
    } catch (error) {
      problems.push(messageOf(error))
      return []
    }
  }

  async #readFile(path: string): Promise<ParsedFile['outcome']> {
    try {
      // readHead follows no symbolic link and opens no fifo.
      const bytes = await this.#files.readHead(path, MAX_FILE_BYTES + 1)
      if (bytes.length > MAX_FILE_BYTES) return { problem: `${path}: larger than ${MAX_FILE_BYTES} bytes` }
      const text = Buffer.from(bytes).toString()
      const known = this.#parsed.get(path)
      if (known?.text === text) return known.outcome
      const outcome = await parsed(path, text)
      this.#parsed.set(path, { text, outcome })
      return outcome
    } catch (error) {
      return { problem: messageOf(error) }
    }
  }
}

async function parsed(path: string, text: string): Promise<ParsedFile['outcome']> {
  try {
    return parseCdiSpec(path.endsWith('.json') ? JSON.parse(text) : await fromYaml(text))
  } catch (error) {
    // The first line names the place; the others only quote it.
    return { problem: `${path}: ${messageOf(error).split('\n')[0]?.replace(/:$/, '')}` }
  }
}

async function fromYaml(text: string): Promise<unknown> {
  const { parseYaml } = await import('./parse-yaml.ts')
  return parseYaml(text)
}
