import * as fs from 'node:fs'
import { promisify } from 'node:util'

/**
 * Calls of node:fs/promises, made of those with a callback: loading that module loads Node's streams and readline, which
 * takes a millisecond of each start of the agent. Only `open`, whose result is a handle, loads it.
 */
export type { FileHandle } from 'node:fs/promises'

export const chmod = promisify(fs.chmod)
export const chown = promisify(fs.chown)
export const close = promisify(fs.close)
export const lchown = promisify(fs.lchown)
export const lstat = promisify(fs.lstat)
export const mkdir = promisify(fs.mkdir)
export const openFd = promisify(fs.open)
export const opendir = promisify(fs.opendir)
export const read = promisify(fs.read)
export const readdir = promisify(fs.readdir)
export const readFile = promisify(fs.readFile)
export const readlink = promisify(fs.readlink)
export const rename = promisify(fs.rename)
export const rmdir = promisify(fs.rmdir)
export const stat = promisify(fs.stat)
export const statfs = promisify(fs.statfs)
export const symlink = promisify(fs.symlink)
export const unlink = promisify(fs.unlink)

export const open: typeof fs.promises.open = (...words) => fs.promises.open(...words)
