import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { projectRoot } from '../build/project.ts'
import type { WrittenFile } from './image-folder.ts'

/** What `npm run image` was asked for. */
export interface ImageCommand {
  /** Where the files are written, as an absolute path. */
  readonly folder: string
  /** Where they will lie on the shim's machine: the configuration snippets name it. */
  readonly installPath: string
  /** Build a kernel with the drivers of a root disk built in, too. */
  readonly kernel: boolean
  /** The file with the policy of the image. */
  readonly policyFile: string | undefined
  /** Give the guest a shell for the debug console. */
  readonly debugShell: boolean
  /** Print the result as JSON. */
  readonly json: boolean
}

/** A mistake in the command line. The message is one sentence that says what to do; the exit status is 2. */
export class UsageError extends Error {}

/** `npm run image -- --help`. */
export const IMAGE_HELP = `Usage: npm run image [-- OPTIONS]

Writes what a hypervisor or one of Kata's shims boots a guest from: kernel, initrds, root disk, two configuration
snippets for Kata, a list of what is inside (CycloneDX), and checksums. What was built before is taken from build/.

  --out DIR            the folder to write into (default: dist/image)
  --install-path DIR   where the files will lie on the shim's machine: the configuration snippets name it
                       (default: the folder itself)
  --kernel             also build a kernel that mounts root.img without an initrd, vmlinuz-built-in: Debian's source
                       with the drivers built in; takes make, gcc and an hour or more, once
  --policy FILE        build this policy in, which is checked first: the agent enforces it from its start, as
                       /etc/kata-opa/default-policy.rego (docs/policy.md)
  --with debug-shell   the guest has a shell, busybox, and the configuration snippets turn the debug console on:
                       "kata-runtime exec" of the Go shim and "kata-ctl exec" of runtime-rs open it
  --json               print one line of JSON: the folder, and each file with its size in bytes and its sha256;
                       "npm run --silent image -- --json" keeps npm's own lines out of it
  -h, --help           this text

Progress and errors go to stderr. Exit status: 0; 2 for a mistake in the command line; 1 when the image could not be
made. docs/kata.md says how to use the files.
`

const OPTIONS = {
  out: { type: 'string' },
  'install-path': { type: 'string' },
  kernel: { type: 'boolean' },
  policy: { type: 'string' },
  with: { type: 'string' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const

const SEE_HELP = 'see npm run image -- --help'

/** Parses the arguments of `npm run image`. Throws {@link UsageError}. */
export function imageOptions(argv: readonly string[]): ImageCommand | 'help' {
  const { tokens } = parseArgs({ args: [...argv], options: OPTIONS, strict: false, tokens: true })
  const texts = new Map<string, string>()
  for (const token of tokens) {
    if (token.kind === 'positional') throw new UsageError(`unknown argument ${token.value}: ${SEE_HELP}`)
    if (token.kind === 'option-terminator') continue
    const { name, rawName, value } = token
    const type = Object.entries(OPTIONS).find(([known]) => known === name)?.[1].type
    if (type === undefined) throw new UsageError(`unknown option ${rawName}: ${SEE_HELP}`)
    if (type === 'string' && !value) throw new UsageError(`${rawName} needs a value: ${SEE_HELP}`)
    if (type === 'boolean' && value !== undefined) throw new UsageError(`${rawName} takes no value`)
    if (name === 'with' && value !== 'debug-shell')
      throw new UsageError(`--with ${value}: unknown part, want debug-shell`)
    texts.set(name, value ?? '')
  }
  if (texts.has('help')) return 'help'
  const folder = resolve(texts.get('out') ?? join(projectRoot, 'dist/image'))
  const installPath = texts.get('install-path') ?? folder
  if (!installPath.startsWith('/'))
    throw new UsageError(`--install-path ${installPath}: give an absolute path`)
  return {
    folder,
    installPath,
    kernel: texts.has('kernel'),
    policyFile: texts.get('policy'),
    debugShell: texts.has('with'),
    json: texts.has('json'),
  }
}

/** The result for people: a line for each file. */
export function filesAsLines(folder: string, files: readonly WrittenFile[]): string {
  const width = Math.max(...files.map(({ name }) => name.length))
  const lines = files.map(
    ({ name, bytes, what }) => `  ${name.padEnd(width)}  ${megabytes(bytes).padStart(9)}  ${what}\n`,
  )
  return `${folder}\n${lines.join('')}`
}

/** The result for scripts: one line of JSON. */
export function filesAsJson(folder: string, files: readonly WrittenFile[]): string {
  return `${JSON.stringify({ folder, files: files.map(({ name, bytes, sha256 }) => ({ name, bytes, sha256 })) })}\n`
}

function megabytes(bytes: number): string {
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`
}
