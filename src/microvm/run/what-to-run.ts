import type { ContainerRequest } from '../../client/container/container-spec.ts'
import type { RunOptions } from '../command-line/parse.mjs'
import { UsageError } from '../command-line/parse.mjs'
import type { ImageConfig } from './oci-layout.ts'

/** The part of a container's request that depends on both the command line and the image. */
export type WhatToRun = Pick<ContainerRequest, 'args' | 'env' | 'cwd' | 'user'>

/** The command of the demonstration. */
const DEMONSTRATION = [
  'sh',
  '-c',
  `echo "Hello from a container in a microVM."
echo "kernel:    $(uname -sr)"
echo "hostname:  $(hostname)"
echo "processes: $(ps | tail -n +2 | wc -l) in this container"
echo "memory:    $(awk '/MemTotal/ { print int($2 / 1024) " MiB" }' /proc/meminfo)"`,
]

/** Whether the demonstration runs: the command line names neither a command nor a root filesystem. */
export function isDemonstration(options: Pick<RunOptions, 'command' | 'rootfs'>): boolean {
  return options.command.length === 0 && options.rootfs === undefined
}

/** Whether the process gets the tool's stdin: with a terminal on either side only with -i, as with docker. */
export function passesInput(
  { interactive, tty }: Pick<RunOptions, 'interactive' | 'tty'>,
  stdin: { readonly isTTY?: boolean },
): boolean {
  return interactive || !(tty || stdin.isTTY === true)
}

/**
 * The process to run: the command line takes precedence over the image, and the image over the defaults. A command on
 * the command line replaces the image's command and keeps its entrypoint. Throws {@link UsageError} when neither has a
 * command.
 */
export function whatToRun(
  options: Pick<RunOptions, 'command' | 'rootfs' | 'env' | 'workdir'>,
  image: ImageConfig | undefined,
): WhatToRun {
  const command = options.command.length > 0 ? options.command : (image?.command ?? [])
  const args = isDemonstration(options) ? DEMONSTRATION : [...(image?.entrypoint ?? []), ...command]
  if (args.length === 0) throw new UsageError('this root filesystem has no command of its own: give one')
  const root = { uid: 0, gid: 0, additionalGids: [] }
  return {
    args,
    env: [...(image?.env ?? []), ...options.env],
    cwd: options.workdir ?? image?.cwd ?? '/',
    user: image?.user ?? root,
  }
}
