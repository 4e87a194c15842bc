import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { UsageError } from '../../../src/microvm/command-line/usage-error.mjs'
import { openRoot } from '../../../src/microvm/run/container-root.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const folder = temporaryFolder()

beforeAll(() => {
  writeFileSync(join(folder, 'text'), 'no archive\n')
  mkdirSync(join(folder, 'empty'))
  execFileSync('tar', ['--create', '--file', join(folder, 'empty.tar'), '--files-from', '/dev/null'])
  execFileSync('tar', ['--create', '--file', join(folder, 'whole.tar'), '--directory', '/bin', 'busybox'])
  writeFileSync(join(folder, 'cut.tar'), readFileSync(join(folder, 'whole.tar')).subarray(0, 100_000))
  for (const name of ['malformed', 'without-blobs', 'without-user']) {
    execFileSync('umoci', ['init', '--layout', join(folder, name)])
    execFileSync('umoci', ['new', '--image', `${join(folder, name)}:latest`])
  }
  writeFileSync(join(folder, 'malformed/index.json'), '{"manifests":')
  rmSync(join(folder, 'without-blobs/blobs/sha256'), { recursive: true })
  const image = `${join(folder, 'without-user')}:latest`
  execFileSync('umoci', ['config', '--image', image, '--config.user=nobody'])
})

describe('openRoot', () => {
  it.each([
    ['text', /^--rootfs \S+\/text: tar: This does not look like a tar archive$/],
    ['cut.tar', /^--rootfs \S+\/cut\.tar: tar: Unexpected EOF in archive$/],
    ['empty', /^--rootfs \S+\/empty: empty, want the files of a root filesystem$/],
    ['empty.tar', /^--rootfs \S+\/empty\.tar: empty, want the files of a root filesystem$/],
    ['whole.tar:latest', /^--rootfs \S+\/whole\.tar:latest: \S+ is not an OCI image layout and has no tags$/],
    ['malformed', /^\S+\/malformed\/index\.json: malformed JSON$/],
    ['without-blobs', /^--rootfs \S+\/without-blobs: umoci: get manifest: .*: no such file or directory$/],
    ['without-user', /^--rootfs \S+\/without-user: umoci: .*: unable to find user nobody: .*$/],
  ])('says in one line why %s is no root filesystem', async (name, sentence) => {
    const opening = openRoot(join(folder, name), temporaryFolder(), AbortSignal.timeout(30_000))
    await expect(opening).rejects.toThrow(UsageError)
    await expect(opening).rejects.toThrow(sentence)
  })
})
