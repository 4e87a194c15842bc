// These functions look at a policy's text to save work. In doubt they answer that a rule may need the input.

/** Rego reaches the input only by the word `input`. */
export function mayReadInput(text: string): boolean {
  return /\binput\b/.test(withoutComments(text))
}

/** False only if the word `input` occurs solely in the form `input.OTHER`. */
export function mayReadField(text: string, field: string): boolean {
  return new RegExp(`\\binput\\b(?!\\.(?!${field}\\b)[A-Za-z_])`).test(withoutComments(text))
}

/** Every Rego function whose value varies has one of these names before a dot or a bracket. */
export function isDeterministic(text: string): boolean {
  return !/\b(http|io|net|opa|rand|time|uuid)\s*[.[]/.test(text)
}

/** Keeps comment lines that could end a string which began before them. */
function withoutComments(text: string): string {
  return text.replace(/^[ \t]*#[^"`\r\n\v\f\u0085\u2028\u2029]*$/gm, '')
}
