import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { writeExt4 } from '../../../src/image/formats/file-systems.ts'
import { directory, fileOf, link } from '../../../src/image/formats/tree.ts'
import { UsageError } from '../../../src/microvm/command-line/usage-error.mjs'
import { userInImage, userWord } from '../../../src/microvm/run/user-in-image.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const folder = temporaryFolder()
const plain = join(folder, 'plain.ext4')
const linked = join(folder, 'linked.ext4')
const empty = join(folder, 'empty.ext4')
const looped = join(folder, 'looped.ext4')

const PASSWD = 'root:x:0:0:root:/root:/bin/sh\napp:x:1234:1235::/:/bin/sh\n'
const GROUP = 'app:x:1235:\nextra:x:77:app\n'

beforeAll(async () => {
  const options = { freeBytes: 2 ** 20, label: 'test' }
  const etc = directory('etc')
  await writeExt4(plain, [etc, fileOf('etc/passwd', PASSWD), fileOf('etc/group', GROUP)], options)
  const store = [directory('store'), fileOf('store/passwd', PASSWD), fileOf('store/group', GROUP)]
  // An absolute link leads to the image's own root.
  const links = [etc, link('etc/passwd', '/store/passwd'), link('etc/group', '../store/group')]
  await writeExt4(linked, [...store, ...links], options)
  await writeExt4(looped, [etc, link('etc/passwd', 'passwd')], options)
  await writeExt4(empty, [etc], options)
})

const found = (text: string, image: string) => userInImage(userWord(text), image, AbortSignal.timeout(10_000))

describe('userInImage', () => {
  it.each([
    ['app', { uid: 1234, gid: 1235, additionalGids: [77] }],
    ['app:extra', { uid: 1234, gid: 77, additionalGids: [] }],
  ])('finds %s, also behind links', async (text, ids) => {
    expect(await found(text, plain)).toEqual(ids)
    expect(await found(text, linked)).toEqual(ids)
  })

  it('needs no files for numbers', async () => {
    expect(await found('5:6', empty)).toEqual({ uid: 5, gid: 6, additionalGids: [] })
  })

  it('says which name is not in which file', async () => {
    const sentence = `--user: user "app": not in the container's /etc/passwd, want a name from there or a number`
    for (const image of [empty, looped]) {
      await expect(found('app', image)).rejects.toThrow(UsageError)
      await expect(found('app', image)).rejects.toThrow(sentence)
    }
  })
})

describe('userWord', () => {
  it('refuses a malformed word', () => {
    expect(() => userWord('a:b:c')).toThrow(UsageError)
    expect(() => userWord('a:b:c')).toThrow('--user: user "a:b:c": malformed, want USER[:GROUP]')
  })
})
