import { messageOf } from '../../../base/errors.ts'
import { type CdiSpec, parseCdiSpec } from '../../../oci/cdi/parse-spec.ts'
import type { Files } from '../../../os/files/files.ts'

/** A specification that could be read, and its file. */
export interface SpecFile {
  readonly path: string
  readonly spec: CdiSpec
}

/** What is in a folder of specifications. */
export interface FolderContents {
  /** In the order of their names. */
  readonly files: readonly SpecFile[]
  /** What is wrong with others, with their paths. */
  readonly problems: readonly string[]
}

/** YAML of this size takes about half a second to be parsed, in which nothing else is done. */
const MAX_FILE_BYTES = 256 * 1024
const MAX_FILES = 64

/** What a file says, or why it says nothing; either way until it changes. */
interface Read {
  readonly text: string
  readonly outcome: CdiSpec | { readonly problem: string }
}

/** A folder of CDI specifications, looked at again and again. Never waits for what is no regular file. */
export class SpecFolder {
  readonly #files: Files
  readonly #folder: string
  readonly #known = new Map<string, Read>()

  constructor(files: Files, folder: string) {
    this.#files = files
    this.#folder = folder
  }

  /** Never rejects: what cannot be read is a problem among others. */
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

  async #readFile(path: string): Promise<Read['outcome']> {
    try {
      // Neither links nor fifos are followed or opened.
      const bytes = await this.#files.readHead(path, MAX_FILE_BYTES + 1)
      if (bytes.length > MAX_FILE_BYTES) return { problem: `${path}: larger than ${MAX_FILE_BYTES} bytes` }
      const text = Buffer.from(bytes).toString()
      const known = this.#known.get(path)
      if (known?.text === text) return known.outcome
      const outcome = await parsed(path, text)
      this.#known.set(path, { text, outcome })
      return outcome
    } catch (error) {
      return { problem: messageOf(error) }
    }
  }
}

async function parsed(path: string, text: string): Promise<Read['outcome']> {
  try {
    return parseCdiSpec(path.endsWith('.json') ? JSON.parse(text) : await fromYaml(text))
  } catch (error) {
    // The lines after the first one show the place, which the first one has named.
    return { problem: `${path}: ${messageOf(error).split('\n')[0]?.replace(/:$/, '')}` }
  }
}

async function fromYaml(text: string): Promise<unknown> {
  const { parseYaml } = await import('./parse-yaml.ts')
  return parseYaml(text)
}
