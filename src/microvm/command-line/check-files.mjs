import { closeSync, existsSync, openSync, statSync } from 'node:fs'
import { isatty } from 'node:tty'
import { UsageError } from './usage-error.mjs'

/**
 * Throws {@link UsageError} when a file of the command line is missing or of the wrong kind, or stdin is.
 * @param {import('./parse.mjs').RunOptions} options
 */
export function checkFiles(options) {
  if (options.interactive && options.tty && !isatty(0)) {
    throw new UsageError('-it: stdin is no terminal, want one, or -i alone for a pipe or a file')
  }
  if (options.image !== undefined) checkImage(options.image)
  if (
    options.kernelFile !== undefined &&
    !statSync(options.kernelFile, { throwIfNoEntry: false })?.isFile()
  ) {
    throw new UsageError(`--kernel ${options.kernelFile}: no such file`)
  }
  if (options.metadata !== undefined && !statSync(options.metadata, { throwIfNoEntry: false })?.isFile()) {
    throw new UsageError(`--metadata ${options.metadata}: no such file`)
  }
  if (options.rootfs !== undefined && !existsSync(splitTag(options.rootfs).path)) {
    throw new UsageError(`--rootfs ${options.rootfs}: no such file or directory`)
  }
}

/**
 * Throws {@link UsageError} when a file that a command reads is missing.
 * @param {Extract<import('./parse.mjs').CommandLine, { kind: 'command' }>} commandLine
 */
export function checkReadFiles({ command, values }) {
  for (const { isRead, name } of [...command.options, ...command.arguments]) {
    const path = values.get(name)
    if (isRead !== true || path === undefined || path === '-') continue
    const status = statSync(path, { throwIfNoEntry: false })
    if (status === undefined) throw new UsageError(`${command.name}: ${path}: no such file`)
    if (status.isDirectory()) throw new UsageError(`${command.name}: ${path}: a folder, want a file`)
  }
}

/**
 * Splits `PATH:TAG`. A colon that is part of an existing path stays in the path.
 * @param {string} text
 * @returns {{ path: string, tag: string | undefined }}
 */
export function splitTag(text) {
  const colon = text.lastIndexOf(':')
  if (colon <= 0 || text.includes('/', colon) || existsSync(text)) return { path: text, tag: undefined }
  return { path: text.slice(0, colon), tag: text.slice(colon + 1) }
}

/** @param {string} path */
function checkImage(path) {
  if (!existsSync(path)) throw new UsageError(`--image ${path}: no such file`)
  const status = statSync(path)
  if (!status.isFile() && !status.isBlockDevice()) {
    throw new UsageError(`--image ${path}: not a file, want a raw disk image (use --rootfs for a directory)`)
  }
  try {
    closeSync(openSync(path, 'r'))
  } catch (error) {
    throw new UsageError(`--image ${path}: cannot be read: ${error instanceof Error ? error.message : error}`)
  }
}
