import { execFile } from 'node:child_process'

/** How a tool is run: its folder, its environment (added to ours) and the Debian package it comes from. */
export interface ToolOptions {
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  /** Named in the error when the tool is not installed. */
  readonly debianPackage: string
  /** Ends the tool before its time. */
  readonly signal?: AbortSignal
}

/** What setpriv exits with when it finds no such program. */
const NOT_FOUND = 127

/**
 * Runs a program to its end and returns what it printed on stdout. The kernel kills it when this process dies by
 * whatever means. Throws one line: which package to install when it is missing, else the command and the last line of
 * its stderr.
 */
export function tool(command: string, args: readonly string[], options: ToolOptions): Promise<string> {
  // Root's own tools (mke2fs, depmod) are not on every user's PATH.
  const path = `${process.env.PATH ?? ''}:/usr/sbin:/sbin:/usr/bin:/bin`
  const env = { ...process.env, PATH: path, LC_ALL: 'C', ...options.env }
  const { cwd, signal } = options
  const tied = ['--pdeathsig', 'KILL', '--', command, ...args]
  return new Promise((resolve, reject) => {
    execFile('setpriv', tied, { cwd, env, signal, maxBuffer: 256 * 2 ** 20 }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout)
      else if (error.code === NOT_FOUND && stderr.startsWith('setpriv: '))
        reject(new Error(`${command} is missing: apt-get install ${options.debianPackage}`))
      else reject(new Error(`${command} ${args.join(' ')}: ${lastLine(stderr) || error.message}`))
    })
  })
}

function lastLine(text: string): string {
  return text.trim().split('\n').at(-1) ?? ''
}
