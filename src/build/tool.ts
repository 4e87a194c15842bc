import { execFile } from 'node:child_process'

/** A tool that ran and failed. The message is the command and the last line of its stderr. */
export class ToolFailure extends Error {
  readonly stderr: string

  constructor(message: string, stderr: string) {
    super(message)
    this.stderr = stderr
  }
}

/** The exit status of setpriv(1) for a program that does not exist. */
const NOT_FOUND = 127

/** Runs a program and returns its stdout. Throws {@link ToolFailure}, or an error that names the package to install. */
export function tool(
  command: string,
  args: readonly string[],
  options: {
    readonly cwd?: string
    readonly env?: Readonly<Record<string, string>>
    /** Named in the error when the tool is not installed. */
    readonly debianPackage: string
    readonly signal?: AbortSignal
  },
): Promise<string> {
  // Not every user's PATH has the folders of mke2fs and depmod.
  const path = `${process.env.PATH ?? ''}:/usr/sbin:/sbin:/usr/bin:/bin`
  const env = { ...process.env, PATH: path, LC_ALL: 'C', ...options.env }
  const { cwd, signal } = options
  const tied = ['--pdeathsig', 'KILL', '--', command, ...args]
  return new Promise((resolve, reject) => {
    execFile('setpriv', tied, { cwd, env, signal, maxBuffer: 256 * 2 ** 20 }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout)
      else if (error.code === NOT_FOUND && stderr.startsWith('setpriv: '))
        reject(
          new Error(`${command}: not found, want it installed: apt-get install ${options.debianPackage}`),
        )
      else
        reject(new ToolFailure(`${command} ${args.join(' ')}: ${lastLine(stderr) || error.message}`, stderr))
    })
  })
}

function lastLine(text: string): string {
  return text.trim().split('\n').at(-1) ?? ''
}
