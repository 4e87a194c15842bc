import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { CreateContainerRequest } from '../../src/gen/agent.ts'
import { busyboxRoot } from '../support/containers/busybox-root.ts'
import type { RecordedCall } from './recording.ts'

/** The folder of a guest in which all shims share the root file systems (spec E.5). */
export const SHARED_FOLDER = '/run/kata-containers/shared/containers/'

/** Makes a root with all that the recorded containers run, in `folder`, and returns its path. */
export function recordedRoot(folder: string): string {
  const root = busyboxRoot(folder)
  chmodSync(join(root, 'tmp'), 0o1777)
  program(join(root, 'pause'), 'while :; do sleep 1000; done')
  // It needs more memory than its container may have.
  program(join(root, 'bin/memhog'), 'echo 0; echo 16; exec dd if=/dev/zero of=/dev/null bs="$1M" count=1')
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n')
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\napp:x:1000:\nextra:x:2000:app\n')
  return root
}

function program(path: string, script: string): void {
  writeFileSync(path, `#!/bin/sh\n${script}\n`)
  chmodSync(path, 0o755)
}

/** What the host's folder has at the mount points of the recorded containers. */
const FILES: Readonly<Record<string, string>> = {
  '/mnt-file': 'busybox\n',
  '/volfile': 'filevol\n',
  '/etc/hostname': 'recorded\n',
  '/etc/hosts': '127.0.0.1 localhost\n',
  '/etc/resolv.conf': 'search example.test\nnameserver 10.88.0.53\noptions ndots:2\n',
}
const FOLDERS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  '/voldir': { f1: 'from-host\n' },
}

/**
 * Before a CreateContainer, makes appear what it names: its root, and the sources of its mounts in the shared folder.
 * `locate` returns the path on this side of a path of the guest.
 */
export function supplyContainer(
  { method, requestBytes = Buffer.alloc(0) }: RecordedCall,
  root: string,
  locate: (path: string) => string,
): void {
  if (method !== 'CreateContainer') return
  const { OCI } = CreateContainerRequest.decode(requestBytes)
  supplyRoot(root, locate(OCI?.Root?.Path ?? ''))
  for (const { source, destination } of OCI?.Mounts ?? []) {
    if (source.startsWith(SHARED_FOLDER)) supplyMount(locate(source), destination)
  }
}

/** Copies a root to `path`, in place of one that an earlier replay left there. */
export function supplyRoot(root: string, path: string): void {
  rmSync(path, { recursive: true, force: true })
  mkdirSync(dirname(path), { recursive: true })
  // cpSync would lose the mode of /tmp.
  execFileSync('cp', ['-a', root, path])
}

function supplyMount(path: string, destination: string): void {
  const [file, folder] = [FILES[destination], FOLDERS[destination]]
  mkdirSync(dirname(path), { recursive: true })
  if (file !== undefined) writeFileSync(path, file)
  else if (folder === undefined) throw new Error(`mount ${destination}: nothing to supply`)
  else {
    mkdirSync(path, { recursive: true })
    for (const [name, text] of Object.entries(folder)) writeFileSync(join(path, name), text)
  }
}
