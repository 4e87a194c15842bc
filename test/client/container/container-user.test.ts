import { describe, expect, it } from 'vitest'
import { findUser, hasName, parseUser } from '../../../src/client/container/container-user.ts'

const FILES = {
  passwd: `root:x:0:0:root:/root:/bin/sh
# a line that is none of an account
broken:x:one:two::/:
web:x:101:102:the web server:/srv:/bin/false
123:x:7:8::/:/bin/sh
short:x:9:10`,
  group: `root:x:0:
audio:x:63:web,root
staff:x:50:
video:x:44:root,web`,
}

function found(word: string): readonly (number | string)[] {
  const { additionalGids, gid, uid } = findUser(parseUser(word), FILES)
  return [uid, gid, additionalGids.join()]
}

describe('findUser', () => {
  it.each([
    ['web', [101, 102, '63,44']],
    ['web:staff', [101, 50, '']],
    ['web:7', [101, 7, '']],
    ['5:staff', [5, 50, '']],
    ['5:6', [5, 6, '']],
    ['5', [5, 5, '']],
    // Digits are an id, even when an account has this name.
    ['123', [123, 123, '']],
    ['short', [9, 10, '']],
    ['root:root', [0, 0, '']],
    ['4294967294', [4294967294, 4294967294, '']],
  ])('finds %s', (word, ids) => {
    expect(found(word)).toEqual(ids)
  })

  it.each([
    ['nobody', `user "nobody": not in the container's /etc/passwd, want a name from there or a number`],
    ['broken', `user "broken": not in the container's /etc/passwd, want a name from there or a number`],
    ['web:nogroup', `group "nogroup": not in the container's /etc/group, want a name from there or a number`],
  ])('does not find %s', (word, text) => {
    expect(() => found(word)).toThrow(text)
  })
})

describe('parseUser', () => {
  it.each(['', ':', 'web:', ':staff', 'a:b:c', 'a b'])('refuses %j', (word) => {
    expect(() => parseUser(word)).toThrow(`user ${JSON.stringify(word)}: malformed, want USER[:GROUP]`)
  })

  it('refuses the number that means no id', () => {
    expect(() => parseUser('4294967295')).toThrow('id 4294967295: too large, want at most 4294967294')
  })
})

describe('hasName', () => {
  it.each([
    ['5', false],
    ['5:6', false],
    ['web:6', true],
    ['5:staff', true],
  ])('says whether files are needed for %s', (word, needed) => {
    expect(hasName(parseUser(word))).toBe(needed)
  })
})
